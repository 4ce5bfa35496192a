package eruca.interop;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;

/** A case that no other may run beside, because it changes something they all use. */
@Retention(RetentionPolicy.RUNTIME)
@interface Alone {}
