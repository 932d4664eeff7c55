//! Manual acknowledgements; see [`statestore_testkit::acknowledgement_suite`].

statestore_testkit::acknowledgement_suite!(crate::suite::Links);
