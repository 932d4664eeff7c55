//! Identity of clients: passwords, certificates and service account tokens.

#[cfg(feature = "tls")]
pub(crate) mod certificates;
pub(crate) mod client_ids;
pub(crate) mod identity;
#[cfg(feature = "passwords")]
pub(crate) mod password_checks;
#[cfg(feature = "service-accounts")]
pub(crate) mod service_accounts;
#[cfg(feature = "passwords")]
pub(crate) mod users;
#[cfg(not(feature = "passwords"))]
#[path = "users_disabled.rs"]
pub(crate) mod users;
