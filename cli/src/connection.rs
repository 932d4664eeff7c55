//! Builds links and handles from the options of a connection.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use statestore_client::{Backoff, ClientLink, Options, Proxy, StateStore, Status, StatusWatch};
use statestore_server::ClientIds;
use statestore_server::config::{ClientTlsFiles, ConfigError};

use crate::args::{Common, Connection, Login};
use crate::failure::Failure;
use crate::output::notice;
use crate::sources::{PASSWORD_VARIABLE, TOKEN_FILE, setting_name};
use crate::tls;

/// Address of a broker.
#[derive(Debug, PartialEq, Eq)]
struct Address<'a> {
    host: &'a str,
    port: u16,
    tls: bool,
}

/// Options of a connection; `default_id` is the client id unless one is set.
pub(crate) fn options(
    brokers: &[String],
    login: &Login,
    default_id: &str,
) -> Result<Options, Failure> {
    let (addresses, tls) = addresses(brokers)?;
    let client_id = login.client_id.clone().unwrap_or_else(|| default_id.to_owned());
    if client_id.is_empty() {
        return Err(Failure::bad_input(format_args!(
            "{} must not be empty; leave it out for a new one",
            setting_name("client-id")
        )));
    }
    if login.password.is_some() && login.user.is_none() {
        return Err(Failure::bad_input(format_args!(
            "{} requires {} NAME",
            setting_name("password"),
            setting_name("user")
        )));
    }
    if login.tls_cert.is_some() != login.tls_key.is_some() {
        return Err(Failure::bad_input(format_args!(
            "{} and {} belong together: set both",
            setting_name("tls-cert"),
            setting_name("tls-key")
        )));
    }
    if login.tls_key_password_file.is_some() && login.tls_key.is_none() {
        return Err(Failure::bad_input(format_args!(
            "{} requires {}",
            setting_name("tls-key-password-file"),
            setting_name("tls-key")
        )));
    }
    let mut addresses = addresses.into_iter();
    let Some(first) = addresses.next() else {
        return Err(Failure::bad_input(format_args!(
            "{}: the list is empty; give at least one URL",
            setting_name("broker")
        )));
    };
    let mut options = addresses
        .fold(Options::new(client_id, first.host, first.port), |options, other| {
            options.add_address(other.host, other.port)
        });
    if let Some(url) = &login.proxy {
        let proxy = Proxy::from_url(url);
        let bad = |error| Failure::bad_input(format_args!("{}: {error}", setting_name("proxy")));
        options = options.proxy(proxy.map_err(bad)?);
    }
    if let Some(user) = &login.user {
        options = options.credentials(user, login.password.as_deref().unwrap_or_default());
    }
    if tls {
        let files = ClientTlsFiles {
            ca: login.tls_ca.as_deref(),
            cert: login.tls_cert.as_deref(),
            key: login.tls_key.as_deref(),
            key_password: login.tls_key_password_file.as_deref(),
        };
        // An invalid file is bad input, not an unreachable broker.
        let tls = files.load().map_err(|error| invalid_file(&error))?;
        options = options.tls(tls);
    } else if login.tls_ca.is_some() || login.tls_cert.is_some() {
        return Err(Failure::bad_input(format_args!(
            "{} and {} require TLS: write the broker as mqtts://HOST:PORT",
            setting_name("tls-ca"),
            setting_name("tls-cert")
        )));
    }
    if let Some(path) = &login.service_account_token_file {
        token(path)?;
        options = options.service_account_token(path);
    }
    if let Some(time) = login.keep_alive {
        options = options.keep_alive(time);
    }
    if options.exposes_credentials() {
        notice("the password or token is sent without TLS: use mqtts://");
    }
    Ok(options)
}

/// The error of a TLS file, with the option or variable that names it.
fn invalid_file(error: &ConfigError) -> Failure {
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

/// Addresses of several URLs, and whether all of them use TLS.
fn addresses(urls: &[String]) -> Result<(Vec<Address<'_>>, bool), Failure> {
    let name = setting_name("broker");
    let (count, most) = (urls.len(), Options::ADDRESSES_MAX);
    if count > most {
        return Err(Failure::bad_input(format_args!(
            "{name}: {count} URLs exceed the limit of {most}; list each broker once"
        )));
    }
    let all = (1..).zip(urls).map(|(number, url)| address(number, url));
    let all = all.collect::<Result<Vec<_>, _>>()?;
    let tls = all.first().is_some_and(|first| first.tls);
    if all.iter().any(|other| other.tls != tls) {
        return Err(Failure::bad_input(format_args!(
            "{name}: mqtt:// and mqtts:// are mixed; write all brokers as mqtt://, or all as \
             mqtts://"
        )));
    }
    Ok((all, tls))
}

/// Parses the URL with this number, from 1.
fn address(number: usize, url: &str) -> Result<Address<'_>, Failure> {
    let bad = || {
        let name = setting_name("broker");
        match url.contains('@') {
            true => Failure::bad_input(format_args!(
                "{name}: a URL must not contain a login; set {} and {}",
                setting_name("user"),
                PASSWORD_VARIABLE
            )),
            // Without a host, a password is where the port should be, so the URL is not quoted.
            false => Failure::bad_input(format_args!(
                "{name}: URL {number} is invalid; write it as mqtt://HOST:PORT, mqtts://HOST:PORT or \
                 HOST:PORT"
            )),
        }
    };
    let (tls, rest) = match url.split_once("://") {
        Some(("mqtt", rest)) => (false, rest),
        Some(("mqtts", rest)) => (true, rest),
        // A single word may be a password, so it is not taken for a host.
        None if url.contains(':') => (false, url),
        _ => return Err(bad()),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| bad())?),
        _ => (rest, if tls { 8883 } else { 1883 }),
    };
    if host.is_empty() || host.contains(['/', '@']) || port == 0 {
        return Err(bad());
    }
    Ok(Address { host, port, tls })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_has_scheme_host_and_port() {
        for (url, host, port, tls) in [
            ("mqtt://127.0.0.1:1883", "127.0.0.1", 1883, false),
            ("mqtt://broker.example", "broker.example", 1883, false),
            ("mqtts://broker.example/", "broker.example", 8883, true),
            ("mqtt://[::1]:1884", "[::1]", 1884, false),
            ("mqtt://[::1]", "[::1]", 1883, false),
            ("broker.example:1884", "broker.example", 1884, false),
        ] {
            assert_eq!(address(1, url).unwrap(), Address { host, port, tls }, "{url}");
        }
        for url in [
            "http://h",
            "h",
            "h:x",
            "u:secret@h",
            "mqtt://",
            "mqtt://h:0",
            "mqtt://h:x",
            "mqtt://u@h",
            "mqtt://h/x",
        ] {
            assert!(matches!(address(1, url), Err(Failure::Refused(_))), "{url}");
        }
        let secret = address(1, "mqtt://alice:secret@h").unwrap_err().to_string();
        assert!(!secret.contains("secret") && secret.contains("--user"), "{secret}");
    }

    #[test]
    fn several_brokers_must_agree_about_tls() {
        let urls = |text: &str| text.split(',').map(ToOwned::to_owned).collect::<Vec<_>>();
        let three = urls("mqtts://a,mqtts://b:1,mqtts://[::1]");
        let (found, tls) = addresses(&three).unwrap();
        let found: Vec<_> = found.iter().map(|address| (address.host, address.port)).collect();
        assert_eq!((found, tls), (vec![("a", 8883), ("b", 1), ("[::1]", 8883)], true));
        for (bad, advice) in [
            ("mqtt://a,mqtts://b".to_owned(), "all as mqtts://"),
            ("mqtt://a,".to_owned(), "mqtt://HOST:PORT"),
            ("mqtt://a,mqtt://u:secret@b".to_owned(), "--user"),
            ("mqtt://a,mqtt://u:secret".to_owned(), "URL 2"),
            (vec!["mqtt://a"; 17].join(","), "limit of 16"),
        ] {
            let error = addresses(&urls(&bad)).unwrap_err();
            assert!(matches!(error, Failure::Refused(_)));
            assert!(error.to_string().contains(advice), "{bad}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        let most = urls(&vec!["mqtt://a"; 16].join(","));
        assert!(addresses(&most).is_ok());
    }

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
