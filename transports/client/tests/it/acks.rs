//! Manual acknowledgements; see [`statestore_tests::acknowledgement_suite`].

statestore_tests::acknowledgement_suite!(crate::suite::Links);
