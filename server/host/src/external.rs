//! Options of the connection to an external broker.

use std::fmt;

use statestore_client::{Options, Proxy};

use crate::config::{ClientTlsFiles, ConfigError, ExternalBroker};

/// Client id of a store, unless another one is configured.
const CLIENT_ID: &str = "statestore";

/// Returns the options of the connection.
pub(crate) fn options(broker: &ExternalBroker) -> Result<Options, ConfigError> {
    let client_id = broker.client_id.clone().unwrap_or_else(|| CLIENT_ID.to_owned());
    if client_id.is_empty() {
        return Err(ConfigError::setting("client-id", "it must not be empty"));
    }
    let mut addresses = Vec::new();
    let mut is_tls = None;
    for (number, url) in (1..).zip(&broker.broker) {
        let parsed = address(number, url)?;
        let has_tls = parsed.tls.is_some();
        if *is_tls.get_or_insert(has_tls) != has_tls {
            return Err(ConfigError::setting(
                "broker",
                "either all URLs are mqtt://, or all are mqtts://",
            ));
        }
        addresses.extend(parsed.addresses());
    }
    let [first, others @ ..] = &*addresses else {
        return Err(ConfigError::setting("broker", "it needs a URL"));
    };
    if addresses.len() > Options::ADDRESSES_MAX {
        let reason = format!("it must have at most {} addresses", Options::ADDRESSES_MAX);
        return Err(ConfigError::setting("broker", reason));
    }
    let mut options = Options::new(client_id, &*first.host, first.port);
    for other in others {
        options = options.add_address(&*other.host, other.port);
    }
    if let Some(url) = &broker.proxy {
        let proxy = Proxy::from_url(url.expose());
        let invalid = |error| ConfigError::setting("proxy", format!("{error}"));
        options = options.proxy(proxy.map_err(invalid)?);
    }
    if let Some(user) = &broker.user {
        let password = broker.password.as_ref().map_or("", |password| password.expose());
        options = options.credentials(user, password);
    }
    if let Some(file) = &broker.service_account_token_file {
        options = options.service_account_token(file);
    }
    if is_tls == Some(true) {
        let files = ClientTlsFiles {
            ca: broker.tls_ca.as_deref(),
            cert: broker.tls_cert.as_deref(),
            key: broker.tls_key.as_deref(),
            key_password: broker.tls_key_password_file.as_deref(),
        };
        options = options.tls(files.load()?);
    } else if broker.tls_ca.is_some() || broker.tls_cert.is_some() {
        let key = if broker.tls_ca.is_some() { "tls-ca" } else { "tls-cert" };
        return Err(ConfigError::setting(
            key,
            "it is for TLS: write the broker as mqtts://HOST:PORT",
        ));
    }
    Ok(options.read_mosquitto_log(broker.presence_from_mosquitto_log))
}

fn address(number: usize, url: &str) -> Result<Options, ConfigError> {
    let is_plain = url.starts_with("mqtt://") || url.starts_with("mqtts://");
    if url.contains('@') {
        return Err(ConfigError::setting(
            "broker",
            "a URL must not contain a password, which others can read: use user and password",
        ));
    }
    // The URL is not quoted: without a host, a password is where the port should be.
    let invalid = |error: &dyn fmt::Display| {
        let reason =
            format!("URL {number}: {error}; write it as mqtt://HOST:PORT or mqtts://HOST:PORT");
        ConfigError::setting("broker", reason)
    };
    if !is_plain || url.contains('?') {
        return Err(invalid(&"invalid URL"));
    }
    let url = url.strip_suffix('/').unwrap_or(url);
    Options::from_url(url).map_err(|error| invalid(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(urls: &[&str]) -> ExternalBroker {
        let broker = urls.iter().map(ToString::to_string).collect();
        ExternalBroker { broker, ..ExternalBroker::default() }
    }

    #[test]
    fn broker_has_scheme_host_and_port() {
        for (url, host, port, is_tls) in [
            ("mqtt://127.0.0.1:1883", "127.0.0.1", 1883, false),
            ("mqtt://broker.example", "broker.example", 1883, false),
            ("mqtts://broker.example/", "broker.example", 8883, true),
            ("mqtt://[::1]:1884", "[::1]", 1884, false),
        ] {
            let options = options(&broker(&[url])).unwrap();
            let address = options.addresses().next().unwrap();
            assert_eq!((&*address.host, address.port), (host, port), "{url}");
            assert_eq!((options.tls.is_some(), &*options.client_id), (is_tls, CLIENT_ID), "{url}");
        }
        for url in [
            "127.0.0.1:1883",
            "http://h",
            "mqtt://",
            "mqtt://h:0",
            "mqtt://h:x",
            "mqtt://h/x",
            "ws://h",
        ] {
            let error = options(&broker(&[url])).unwrap_err();
            assert_eq!(error.key(), Some("broker"), "{url}: {error}");
        }
    }

    #[test]
    fn password_in_a_url_is_not_shown() {
        let error = options(&broker(&["mqtt://alice:secret@h"])).unwrap_err().to_string();
        assert!(!error.contains("secret") && error.contains("user"), "{error}");
        for url in ["mqtt://alice:secret", "alice:secret", "mqtt://h?secret", "mqtt://h/secret"] {
            let error = options(&broker(&["mqtt://h", url])).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains("URL 2"), "{url}: {error}");
        }
    }

    #[test]
    fn proxy_is_that_of_the_url_and_its_password_is_not_shown() {
        let with_proxy = |url: &str| {
            let proxy = Some(url.to_owned().into());
            options(&ExternalBroker { proxy, ..broker(&["mqtt://h"]) })
        };
        let options = with_proxy("http://me:secret@proxy:3128").unwrap();
        assert_eq!(options.proxy, Some(Proxy::new("proxy", 3128).credentials("me", "secret")));
        let error = with_proxy("https://me:secret@proxy").unwrap_err();
        assert_eq!(error.key(), Some("proxy"));
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn several_brokers_agree_about_tls() {
        assert_eq!(options(&broker(&["mqtt://a", "mqtt://b:1"])).unwrap().addresses().count(), 2);
        assert!(options(&broker(&["mqtt://a", "mqtts://b"])).is_err());
        assert!(options(&broker(&["mqtt://a"; 16])).is_ok());
        assert!(options(&broker(&["mqtt://a"; 17])).is_err());
    }

    #[test]
    fn tls_file_needs_a_tls_url() {
        let broker = ExternalBroker { tls_ca: Some("ca.pem".into()), ..broker(&["mqtt://h"]) };
        assert_eq!(options(&broker).unwrap_err().key(), Some("tls-ca"));
        let missing = ExternalBroker { broker: vec!["mqtts://h".to_owned()], ..broker };
        assert_eq!(options(&missing).unwrap_err().key(), Some("tls-ca"));
    }
}
