//! The shared suite of all links.

use statestore_client::{ClientLink, Options};
use statestore_testkit::link_suite;
use statestore_testkit::links::suite::Adapter;

/// Links of this crate.
pub(crate) struct Links;

impl Adapter for Links {
    type Link = ClientLink;

    const REPORTS_SUCCESS_REASONS: bool = true;

    fn client(options: Options) -> ClientLink {
        ClientLink::for_client(options)
    }

    fn store(options: Options) -> ClientLink {
        ClientLink::for_store(options)
    }

    fn store_without_claim(options: Options) -> ClientLink {
        ClientLink::for_store(options).without_claim()
    }
}

link_suite!(Links);
