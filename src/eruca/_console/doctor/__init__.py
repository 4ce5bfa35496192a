"""The page of the doctor's findings."""
