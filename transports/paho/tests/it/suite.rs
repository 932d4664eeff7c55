//! The suite that all links share.

use statestore_paho::{Options, PahoLink};
use statestore_testkit::link_suite;
use statestore_testkit::links::suite::{self, Adapter};
use statestore_testkit::process::timely;

/// The links of this package.
pub(crate) struct Links;

impl Adapter for Links {
    type Link = PahoLink;

    const REPORTS_SUCCESS_REASONS: bool = false;

    fn client(options: Options) -> PahoLink {
        PahoLink::for_client(options)
    }

    fn store(options: Options) -> PahoLink {
        PahoLink::for_store(options)
    }

    fn store_without_claim(options: Options) -> PahoLink {
        PahoLink::for_store(options).without_claim()
    }
}

link_suite!(Links);

#[tokio::test]
async fn options_beyond_tcp_and_passwords_are_unsupported() {
    suite::options_beyond_tcp_and_passwords_are_unsupported::<Links>().await;
}

#[tokio::test]
async fn lost_connection_returns_packets() {
    timely(suite::lost_connection_returns_packets::<Links>()).await;
}
