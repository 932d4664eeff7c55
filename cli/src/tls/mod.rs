//! Diagnosis of a failed connection: what is wrong with a certificate, and whether the port speaks
//! TLS.

mod probe;

use statestore_client::{Address, LinkError, LinkErrorKind, Proxy, SettingNames, TlsProblem};

/// The names of the options of `statestore`.
pub(crate) fn option_names() -> SettingNames {
    SettingNames {
        broker: "--broker".to_owned(),
        tls_ca: "--tls-ca".to_owned(),
        tls_cert: "--tls-cert".to_owned(),
        tls_key: "--tls-key".to_owned(),
    }
}

/// Diagnoses a failed first attempt. An error of TLS becomes permanent, with advice that names
/// the options of `statestore`.
///
/// If it is unclear whether the port speaks TLS, the port is probed, through the proxy if there is
/// one.
pub(crate) async fn diagnose(
    error: LinkError,
    at: Address,
    is_encrypted: bool,
    proxy: Option<Proxy>,
) -> LinkError {
    match find(&error, &at, is_encrypted, proxy.as_ref()).await {
        Some(problem) => {
            let error = error.with_diagnosis(LinkErrorKind::Tls, &problem);
            error.with_advice(problem.remedy(&option_names())).permanent().address_specific(None)
        }
        None => error,
    }
}

async fn find(
    error: &LinkError,
    at: &Address,
    is_encrypted: bool,
    proxy: Option<&Proxy>,
) -> Option<TlsProblem> {
    let problem = error.tls_problem();
    if problem.as_ref().is_some_and(|problem| *problem != TlsProblem::HandshakeClosed) {
        return problem;
    }
    match error.kind() {
        LinkErrorKind::Tls | LinkErrorKind::Unreachable | LinkErrorKind::Lost if is_encrypted => {
            probe::speaks_mqtt(at, proxy).await.then_some(TlsProblem::PlainPort)
        }
        LinkErrorKind::Lost | LinkErrorKind::Protocol if !is_encrypted => {
            probe::speaks_tls(at, proxy).await.then_some(TlsProblem::TlsPort)
        }
        _ => None,
    }
}
