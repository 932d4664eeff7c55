//! TLS; see [`statestore_testkit::links::tls_suite`].

use statestore_client::{Tls, TlsError, tls_config};
use statestore_testkit::credentials::Certificates;
use statestore_testkit::links::tls_suite;

use crate::suite::Links;

#[tokio::test]
async fn peers_verify_their_certificates() {
    tls_suite::peers_verify_their_certificates::<Links>("client_peers_verify_their_certificates")
        .await;
}

#[cfg(feature = "encrypted-keys")]
#[tokio::test]
async fn encrypted_key_needs_its_password() {
    tls_suite::encrypted_key_needs_its_password::<Links>("client_encrypted_key_needs_its_password")
        .await;
}

#[test]
fn client_certificate_of_version_1_is_explained() {
    let test = "client_certificate_of_version_1_is_explained";
    let Some(made) = Certificates::make(test) else { return };
    made.make_version_1("old", "ca");
    let tls = Tls::default().ca_file(made.path("ca.pem"));
    let tls = tls.identity(made.path("old.pem"), made.path("old.key"));
    let error = tls_config(&tls).map(drop).expect_err("no broker accepts version 1");
    assert!(matches!(error, TlsError::VersionOne { .. }), "{error:?}");
    assert!(error.to_string().contains("create it with extensions"), "{error}");
}
