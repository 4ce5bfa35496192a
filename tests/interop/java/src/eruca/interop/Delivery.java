package eruca.interop;

/** The cases of {@link DeliveryCases}, asked for as those of {@link Behaviour} are. */
public final class Delivery {
    private Delivery() {
    }

    public static void main(String[] arguments) throws Exception {
        Behaviour.run(arguments, new DeliveryCases(), new DeliveryRequests());
    }
}
