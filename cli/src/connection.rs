//! Builds links and handles from the options of a connection.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use statestore_client::{Backoff, ClientLink, Options, StateStore, Status, StatusWatch};
use statestore_server::ClientIds;
use statestore_server::config::{ConfigError, ExternalBroker};

use crate::args::{Common, Connection, Login};
use crate::failure::Failure;
use crate::output::notice;
use crate::sources::{TOKEN_FILE, setting_name};
use crate::tls;

/// Options of a connection; `default_id` is the client id unless one is set.
pub(crate) fn options(
    brokers: &[String],
    login: &Login,
    default_id: &str,
) -> Result<Options, Failure> {
    let settings = ExternalBroker {
        broker: brokers.to_vec(),
        proxy: login.proxy.clone().map(Into::into),
        client_id: login.client_id.clone(),
        user: login.user.clone(),
        password: login.password.clone().map(Into::into),
        service_account_token_file: login.service_account_token_file.clone(),
        tls_ca: login.tls_ca.clone(),
        tls_cert: login.tls_cert.clone(),
        tls_key: login.tls_key.clone(),
        tls_key_password_file: login.tls_key_password_file.clone(),
        ..ExternalBroker::default()
    };
    // An invalid file is bad input, not an unreachable broker.
    let options = settings.options(default_id).map_err(|error| invalid(&error));
    let mut options = options?;
    if let Some(path) = &login.service_account_token_file {
        token(path)?;
    }
    if let Some(time) = login.keep_alive {
        options = options.keep_alive(time);
    }
    if options.exposes_credentials() {
        notice("the password or token is sent without TLS: use mqtts://");
    }
    Ok(options)
}

/// The error of a setting, with the option or variable that sets it.
fn invalid(error: &ConfigError) -> Failure {
    match (error.key(), error.reason()) {
        (Some(key), Some(reason)) => {
            Failure::bad_input(format_args!("{}: {reason}", setting_name(key)))
        }
        _ => Failure::bad_input(error),
    }
}

/// Reads a token of at most 60 KiB, which is more than brokers accept.
pub(crate) fn token(path: &Path) -> Result<Vec<u8>, Failure> {
    const TOKEN_MAX: usize = 60 << 10;
    let bad = |error: &dyn std::fmt::Display| {
        let name = setting_name(TOKEN_FILE);
        Failure::bad_input(format_args!("{name} {}: {error}", path.display()))
    };
    let mut token = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| bad(&error))?;
    let limit = u64::try_from(TOKEN_MAX).unwrap_or(u64::MAX) + 1;
    file.take(limit).read_to_end(&mut token).map_err(|error| bad(&error))?;
    let token = token.trim_ascii();
    match token.len() {
        0 => Err(bad(&"the file contains no token")),
        len if len > TOKEN_MAX => Err(bad(&"too long for a token")),
        _ => Ok(token.to_vec()),
    }
}

/// Returns a handle on the store of a broker. Prints a message if the connection takes long.
pub(crate) fn store(common: &Common) -> Result<StateStore, Failure> {
    let store = silent_store(common)?;
    tokio::spawn(report_slow_connection(store.status(), common.connection.broker.clone()));
    Ok(store)
}

/// Returns a handle on the store of a broker, and prints nothing.
pub(crate) fn silent_store(common: &Common) -> Result<StateStore, Failure> {
    let Connection { broker, login } = &common.connection;
    let options = options(broker, login, &client_id(login, "cli"))?;
    let options = limit_connect_timeout(options, common.time_limit.timeout);
    let pauses = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };
    let link = link(options);
    let builder = StateStore::builder().timeout(common.time_limit.timeout).backoff(pauses);
    let name = setting_name("client-id");
    let failed = |error| Failure::bad_input(format_args!("{name}: {error}"));
    builder.spawn(link).map_err(failed)
}

/// Shortens the connection timeout so that each of several brokers is tried within `timeout`, and
/// the error of a proxy that does not respond arrives before.
pub(crate) fn limit_connect_timeout(options: Options, timeout: Duration) -> Options {
    let count = u32::try_from(options.addresses().count()).unwrap_or(u32::MAX);
    let each = options.connect_timeout.min(timeout / count.saturating_add(1));
    let is_limited = count > 1 || options.proxy.is_some();
    if is_limited { options.connect_timeout(each) } else { options }
}

/// Returns a link with a diagnosis of TLS: it ends at the first attempt if TLS cannot succeed.
pub(crate) fn link(options: Options) -> ClientLink {
    let (is_encrypted, proxy) = (options.tls.is_some(), options.proxy.clone());
    ClientLink::for_client(options).diagnose(move |error, at| {
        // A notice about variables follows its advice.
        Box::pin(tls::diagnose(error, at, is_encrypted, proxy.clone()))
    })
}

/// Prints a message if the connection takes more than a second.
pub(crate) async fn report_slow_connection(mut status: StatusWatch, brokers: Vec<String>) {
    tokio::time::sleep(Duration::from_secs(1)).await;
    if let Status::Offline { last_error } = status.current() {
        let reason = last_error.map_or_else(|| "no response".to_owned(), |error| error.to_string());
        match &*brokers {
            [broker] => {
                notice(format_args!("not connected to {broker} yet ({reason}); still trying"))
            }
            brokers => notice(format_args!(
                "not connected to any of {} brokers yet ({reason}); still trying",
                brokers.len()
            )),
        }
    }
}

/// A unique client id. It begins with the user name, if any, since brokers may require that.
pub(crate) fn client_id(login: &Login, role: &str) -> String {
    match login.user.as_deref().filter(|user| !user.is_empty()) {
        Some(user) => format!("{}{}", ClientIds::new(user).prefix(), unique_id(role)),
        None => unique_id(role),
    }
}

/// A unique name.
pub(crate) fn unique_id(role: &str) -> String {
    format!("statestore-{role}-{:08x}", fastrand::u32(..))
}

#[cfg(test)]
mod tests {
    use statestore_client::Proxy;

    use super::*;

    #[test]
    fn connect_timeout_is_divided_among_brokers() {
        let seconds = |count: u16, timeout| {
            let options = (1..count)
                .fold(Options::new("c1", "a", 1), |options, other| options.add_address("b", other));
            limit_connect_timeout(options, Duration::from_secs(timeout)).connect_timeout.as_secs()
        };
        assert_eq!([seconds(1, 10), seconds(1, 1)], [5, 5], "one broker has the default timeout");
        let with_proxy = |timeout| {
            let options = Options::new("c1", "a", 1).proxy(Proxy::new("proxy", 1));
            limit_connect_timeout(options, Duration::from_secs(timeout)).connect_timeout.as_secs()
        };
        assert_eq!([with_proxy(10), with_proxy(4), with_proxy(1)], [5, 2, 1]);
        assert_eq!([seconds(2, 10), seconds(3, 10), seconds(9, 10), seconds(3, 60)], [3, 2, 1, 5]);
    }

    #[test]
    fn client_ids_are_unique() {
        assert_ne!(unique_id("cli"), unique_id("cli"));
    }
}
