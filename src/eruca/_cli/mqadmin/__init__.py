"""`eruca admin`: the commands of mqadmin."""
