//! TLS; see [`statestore_testkit::links::tls_suite`].

use statestore_testkit::links::tls_suite;

use crate::suite::Links;

#[tokio::test]
async fn peers_verify_their_certificates() {
    tls_suite::peers_verify_their_certificates::<Links>("rumqttc_peers_verify_their_certificates")
        .await;
}

#[cfg(feature = "encrypted-keys")]
#[tokio::test]
async fn encrypted_key_needs_its_password() {
    tls_suite::encrypted_key_needs_its_password::<Links>(
        "rumqttc_encrypted_key_needs_its_password",
    )
    .await;
}
