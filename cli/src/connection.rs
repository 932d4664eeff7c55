//! From the options of a connection to a link.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use statestore_rumqttc::{
    Backoff, InUse, Options, RumqttcLink, StateStore, Status, StatusWatch, Tls, TlsError, Trouble,
    tls_config,
};

use crate::args::{Common, Connection, Login};
use crate::failure::Failure;
use crate::output::say;
use crate::policy::client_prefix;

/// Where a broker is.
#[derive(Debug, PartialEq, Eq)]
struct Address<'a> {
    host: &'a str,
    port: u16,
    tls: bool,
}

/// What rumqttc needs for this connection, with a client id of its own unless one is given.
pub(crate) fn options(
    brokers: &[String],
    login: &Login,
    default_id: &str,
) -> Result<Options, Failure> {
    let (addresses, tls) = addresses(brokers)?;
    let client_id = login.client_id.clone().unwrap_or_else(|| default_id.to_owned());
    if client_id.is_empty() {
        return Err(Failure::bad_input(
            "--client-id: a client id is not empty; leave it out for a new one",
        ));
    }
    // The environment may have these for a store beside a broker, which is not asked for here.
    if login.password.is_some() && login.user.is_none() {
        return Err(Failure::bad_input("--password: whose? Say so with --user NAME"));
    }
    if login.cert.is_some() != login.key_file.is_some() {
        return Err(Failure::bad_input("--cert and --key-file belong together: give both"));
    }
    if let Some(path) = &login.service_account_token_file {
        token(path)?;
    }
    let mut addresses = addresses.into_iter();
    let first = addresses.next().ok_or_else(|| Failure::bad_input("--broker: name one"))?;
    let mut options = addresses
        .fold(Options::new(client_id, first.host, first.port), |options, other| {
            options.or_at(other.host, other.port)
        });
    if let Some(user) = &login.user {
        options = options.credentials(user, login.password.as_deref().unwrap_or_default());
    }
    if tls {
        let mut tls = Tls::default();
        if let Some(ca) = &login.ca {
            tls = tls.ca_file(ca);
        }
        if let (Some(cert), Some(key)) = (&login.cert, &login.key_file) {
            tls = tls.identity(cert, key);
        }
        // A file that is of no use is bad input rather than a broker that cannot be reached.
        tls_config(&tls).map_err(|error| {
            let option = match &error {
                TlsError::File { file, .. }
                | TlsError::Pem { file, .. }
                | TlsError::EncryptedKey { file } => option_of(login, file),
                _ => "",
            };
            Failure::bad_input(format_args!("{option}{error}"))
        })?;
        options = options.tls(tls);
    } else if login.ca.is_some() || login.cert.is_some() {
        return Err(Failure::bad_input(
            "--ca and --cert are for TLS: write the broker as mqtts://HOST:PORT",
        ));
    }
    Ok(options)
}

/// Which option of TLS names this file, as the beginning of a sentence.
fn option_of(login: &Login, file: &Path) -> &'static str {
    let is = |named: &Option<PathBuf>| named.as_deref() == Some(file);
    match () {
        () if is(&login.ca) => "--ca ",
        () if is(&login.cert) => "--cert ",
        () if is(&login.key_file) => "--key-file ",
        () => "",
    }
}

/// The same link, which logs in as a service account if it is to.
pub(crate) fn as_account(link: RumqttcLink, login: &Login) -> RumqttcLink {
    let Some(path) = login.service_account_token_file.clone() else { return link };
    link.mqtt_options(move |mqtt| {
        // Who has mounted it there writes a new one before it expires. Without any the broker says that it takes none.
        let token = token(&path).unwrap_or_default();
        mqtt.set_authentication_method(Some("K8S-SAT".into()));
        mqtt.set_authentication_data(Some(token.into()));
    })
}

/// The token in a file, of 60 KiB at most: more than brokers take.
pub(crate) fn token(path: &Path) -> Result<Vec<u8>, Failure> {
    const TOKEN_MAX: usize = 60 << 10;
    let bad = |error: &dyn std::fmt::Display| {
        Failure::bad_input(format_args!("--service-account-token-file {}: {error}", path.display()))
    };
    let mut token = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| bad(&error))?;
    let limit = u64::try_from(TOKEN_MAX).unwrap_or(u64::MAX) + 1;
    file.take(limit).read_to_end(&mut token).map_err(|error| bad(&error))?;
    let token = token.trim_ascii();
    match token.len() {
        0 => Err(bad(&"there is no token in it")),
        len if len > TOKEN_MAX => Err(bad(&"this is too long to be a token")),
        _ => Ok(token.to_vec()),
    }
}

/// A handle on the store beside this broker. It is said if that is not reached soon.
pub(crate) fn store(common: &Common) -> Result<StateStore, Failure> {
    let store = silent_store(common)?;
    tokio::spawn(say_if_slow(store.status(), common.connection.broker.clone()));
    Ok(store)
}

/// The same, and nothing is said.
pub(crate) fn silent_store(common: &Common) -> Result<StateStore, Failure> {
    let Connection { broker, login } = &common.connection;
    let options = options(broker, login, &client_id(login, "cli"))?;
    let options = in_time(options, common.timeout);
    let pauses = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };
    let link = as_account(RumqttcLink::for_client(options), login).fail_fast(advice);
    let builder = StateStore::builder().timeout(common.timeout).backoff(pauses);
    builder.spawn(link).map_err(|error| Failure::bad_input(format_args!("--client-id: {error}")))
}

/// The same with connection time-outs that let all of several brokers have their turn within this time, if they are whole
/// seconds then.
fn in_time(options: Options, timeout: Duration) -> Options {
    let count = u32::try_from(options.addresses().count()).unwrap_or(u32::MAX);
    let each = options.connect_timeout.min(timeout / count.saturating_add(1));
    if count > 1 { options.connect_timeout(each) } else { options }
}

/// What is the matter with a connection, and which option mends it.
pub(crate) fn advice(trouble: &Trouble) -> String {
    format!("{trouble}; {}", remedy(trouble))
}

/// Which option mends it.
pub(crate) const fn remedy(trouble: &Trouble) -> &'static str {
    match trouble {
        Trouble::IsPlain => "write the --broker as mqtt://, or find the port that speaks TLS",
        Trouble::IsTls => "write the --broker as mqtts://",
        Trouble::UnknownAuthority => "name the certificate of its authority with --ca",
        Trouble::OtherName(_) => "write the --broker with the name in its certificate",
        Trouble::NotValidNow(_) => "it needs a new one, unless the clock of this machine is wrong",
        Trouble::CertificateWanted => "give one with --cert and --key-file",
        Trouble::CertificateRefused(_) => "give another one with --cert and --key-file",
        _ => "check --broker, --ca, --cert and --key-file",
    }
}

/// Says once what it waits for, when there is no connection after a while.
pub(crate) async fn say_if_slow(mut status: StatusWatch, brokers: Vec<String>) {
    tokio::time::sleep(Duration::from_secs(1)).await;
    if let Status::Offline { reason } = status.current() {
        let reason = reason.as_deref().unwrap_or("no answer");
        match &*brokers {
            [broker] => say(format_args!("not connected to {broker} yet ({reason}); still trying")),
            brokers => say(format_args!(
                "not connected to any of {} brokers yet ({reason}); still trying",
                brokers.len()
            )),
        }
    }
}

/// The URL of the broker that is in use, as it was given; all of them while none is.
pub(crate) fn url_in_use(brokers: &[String], in_use: &InUse) -> String {
    let now = in_use.address();
    let is_it = |url: &&String| {
        now.as_ref().is_some_and(|now| {
            address(url).is_ok_and(|other| other.host == now.host && other.port == now.port)
        })
    };
    brokers.iter().find(is_it).cloned().unwrap_or_else(|| brokers.join(", "))
}

/// A client id that no other run has. A user's begins with the name, as brokers that bind client ids to users want it.
pub(crate) fn client_id(login: &Login, role: &str) -> String {
    match &login.user {
        Some(user) => format!("{}{}", client_prefix(user), unique_id(role)),
        None => unique_id(role),
    }
}

/// A name that no other run has.
pub(crate) fn unique_id(role: &str) -> String {
    format!("statestore-{role}-{:08x}", fastrand::u32(..))
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure::bad_input(format_args!("{}: {error}", path.display())))
}

/// The addresses of several URLs, and whether they take TLS, as all of them do or none.
fn addresses(urls: &[String]) -> Result<(Vec<Address<'_>>, bool), Failure> {
    let (count, most) = (urls.len(), Options::ADDRESSES_MAX);
    if count > most {
        return Err(Failure::bad_input(format_args!(
            "--broker: these are {count} URLs, and {most} are the most: name the brokers that stand by for one another, each once"
        )));
    }
    let all = urls.iter().map(|url| address(url)).collect::<Result<Vec<_>, _>>()?;
    let tls = all.first().is_some_and(|first| first.tls);
    if all.iter().any(|other| other.tls != tls) {
        return Err(Failure::bad_input(
            "--broker: write all brokers as mqtt://, or all as mqtts://: what is sent to one may be sent to each",
        ));
    }
    Ok((all, tls))
}

/// Host and port of one broker that speaks without TLS.
pub(crate) fn plain_address(url: &str) -> Result<(String, u16), Failure> {
    let Address { host, port, tls } = address(url)?;
    if tls {
        return Err(Failure::bad_input(
            "--broker: what is encrypted cannot be looked into: write it as mqtt://HOST:PORT",
        ));
    }
    Ok((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port))
}

fn address(url: &str) -> Result<Address<'_>, Failure> {
    let bad = || match url.contains('@') {
        true => Failure::bad_input(
            "--broker: a URL holds no user and no password: give --user and STATESTORE_PASSWORD",
        ),
        false => Failure::bad_input(format_args!(
            "{url}: write the broker as mqtt://HOST:PORT or mqtts://HOST:PORT"
        )),
    };
    let (tls, rest) = match url.split_once("://") {
        Some(("mqtt", rest)) => (false, rest),
        Some(("mqtts", rest)) => (true, rest),
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
    fn brokers_are_named_by_scheme_host_and_port() {
        for (url, host, port, tls) in [
            ("mqtt://127.0.0.1:1883", "127.0.0.1", 1883, false),
            ("mqtt://broker.example", "broker.example", 1883, false),
            ("mqtts://broker.example/", "broker.example", 8883, true),
            ("mqtt://[::1]:1884", "[::1]", 1884, false),
            ("mqtt://[::1]", "[::1]", 1883, false),
        ] {
            assert_eq!(address(url).unwrap(), Address { host, port, tls }, "{url}");
        }
        for url in [
            "127.0.0.1:1883",
            "http://h",
            "mqtt://",
            "mqtt://h:0",
            "mqtt://h:x",
            "mqtt://u@h",
            "mqtt://h/x",
        ] {
            assert!(matches!(address(url), Err(Failure::Refused(_))), "{url}");
        }
        let secret = address("mqtt://alice:secret@h").unwrap_err().to_string();
        assert!(!secret.contains("secret") && secret.contains("--user"), "{secret}");
    }

    #[test]
    fn several_brokers_agree_about_tls() {
        let urls = |text: &str| text.split(',').map(ToOwned::to_owned).collect::<Vec<_>>();
        let three = urls("mqtts://a,mqtts://b:1,mqtts://[::1]");
        let (found, tls) = addresses(&three).unwrap();
        let found: Vec<_> = found.iter().map(|address| (address.host, address.port)).collect();
        assert_eq!((found, tls), (vec![("a", 8883), ("b", 1), ("[::1]", 8883)], true));
        for (bad, advice) in [
            ("mqtt://a,mqtts://b".to_owned(), "all as mqtts://"),
            ("mqtt://a,".to_owned(), "mqtt://HOST:PORT"),
            ("mqtt://a,mqtt://u:secret@b".to_owned(), "--user"),
            (vec!["mqtt://a"; 17].join(","), "16 are the most"),
        ] {
            let error = addresses(&urls(&bad)).unwrap_err();
            assert!(matches!(error, Failure::Refused(_)));
            assert!(error.to_string().contains(advice), "{bad}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert!(addresses(&urls(&vec!["mqtt://a"; 16].join(","))).is_ok());
    }

    #[test]
    fn each_of_several_brokers_has_its_turn_in_time() {
        let seconds = |count: u16, timeout| {
            let options = (1..count)
                .fold(Options::new("c1", "a", 1), |options, other| options.or_at("b", other));
            in_time(options, Duration::from_secs(timeout)).connect_timeout.as_secs()
        };
        assert_eq!([seconds(1, 10), seconds(1, 1)], [5, 5], "one has the usual time");
        assert_eq!([seconds(2, 10), seconds(3, 10), seconds(9, 10), seconds(3, 60)], [3, 2, 1, 5]);
    }

    #[test]
    fn every_run_has_a_client_id_of_its_own() {
        assert_ne!(unique_id("cli"), unique_id("cli"));
    }
}
