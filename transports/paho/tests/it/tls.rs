//! TLS; see [`statestore_testkit::links::tls_suite`].

use statestore_testkit::links::tls_suite;

use crate::suite::Links;

#[tokio::test]
async fn peers_verify_their_certificates() {
    tls_suite::peers_verify_their_certificates::<Links>("paho_peers_verify_their_certificates")
        .await;
}

#[tokio::test]
async fn encrypted_key_needs_its_password() {
    tls_suite::encrypted_key_needs_its_password::<Links>("paho_encrypted_key_needs_its_password")
        .await;
}
