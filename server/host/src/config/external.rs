//! Options of the connection to an external broker, from its settings.

use std::fmt;

use statestore_client::{Options, Proxy};

use super::{ClientTlsFiles, ConfigError, ExternalBroker};

/// Client id of a store, unless another one is configured.
pub(crate) const CLIENT_ID: &str = "statestore";

impl ExternalBroker {
    /// Returns the options of a connection, for a store or for any other client. Reads the files of
    /// TLS once. Blocks.
    ///
    /// A broker is `mqtt://HOST[:PORT]`, `mqtts://HOST[:PORT]` or `HOST:PORT`, which is without TLS.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] with the first setting that is invalid. The text contains no
    /// password.
    pub fn options(&self, default_client_id: &str) -> Result<Options, ConfigError> {
        self.check()?;
        let client_id = self.client_id.as_deref().unwrap_or(default_client_id);
        if client_id.is_empty() {
            let reason = "it must not be empty; leave it out for the default";
            return Err(ConfigError::setting("client-id", reason));
        }
        let urls = parse_urls(self)?;
        let is_tls = urls.iter().any(|url| url.tls.is_some());
        if is_tls && urls.iter().any(|url| url.tls.is_none()) {
            let reason = "mqtt:// and mqtts:// are mixed; write all brokers as mqtt://, or all as \
                          mqtts://";
            return Err(ConfigError::setting("broker", reason));
        }
        let addresses: Vec<_> = urls.iter().flat_map(Options::addresses).collect();
        let (count, most) = (addresses.len(), Options::ADDRESSES_MAX);
        if count > most {
            let reason = format!("{count} addresses exceed the limit of {most}; list each once");
            return Err(ConfigError::setting("broker", reason));
        }
        let Some((first, others)) = addresses.split_first() else {
            return Err(ConfigError::setting("broker", "it needs a URL"));
        };
        let mut options = Options::new(client_id, &*first.host, first.port);
        for other in others {
            options = options.add_address(&*other.host, other.port);
        }
        if let Some(url) = &self.proxy {
            let proxy = Proxy::from_url(url.expose());
            let invalid = |error| ConfigError::setting("proxy", format!("{error}"));
            options = options.proxy(proxy.map_err(invalid)?);
        }
        if let Some(user) = &self.user {
            let password = self.password.as_ref().map_or("", |password| password.expose());
            options = options.credentials(user, password);
        }
        if let Some(file) = &self.service_account_token_file {
            options = options.service_account_token(file);
        }
        if is_tls {
            let files = ClientTlsFiles {
                ca: self.tls_ca.as_deref(),
                cert: self.tls_cert.as_deref(),
                key: self.tls_key.as_deref(),
                key_password: self.tls_key_password_file.as_deref(),
            };
            options = options.tls(files.load()?);
        } else if self.tls_ca.is_some() || self.tls_cert.is_some() {
            let key = if self.tls_ca.is_some() { "tls-ca" } else { "tls-cert" };
            let reason = "it requires TLS: write the broker as mqtts://HOST:PORT";
            return Err(ConfigError::setting(key, reason));
        }
        Ok(options.read_mosquitto_log(self.presence_from_mosquitto_log))
    }
}

/// Parses the URLs. No error contains one.
pub(super) fn parse_urls(broker: &ExternalBroker) -> Result<Vec<Options>, ConfigError> {
    (1..).zip(&broker.broker).map(|(number, url)| address(number, url)).collect()
}

/// Parses the URL with this number, from 1.
fn address(number: usize, url: &str) -> Result<Options, ConfigError> {
    if url.contains('@') {
        let reason = "a URL must not contain a login, which others can read: set user and password";
        return Err(ConfigError::setting("broker", reason));
    }
    // The URL is not quoted: without a host, a password is where the port should be.
    let invalid = |error: &dyn fmt::Display| {
        let reason = format!(
            "URL {number}: {error}; write it as mqtt://HOST:PORT, mqtts://HOST:PORT or HOST:PORT"
        );
        ConfigError::setting("broker", reason)
    };
    let rest = url.strip_prefix("mqtt://").or_else(|| url.strip_prefix("mqtts://"));
    // A single word may be a password, so it is not taken for a host.
    let is_address = rest.is_some() || (url.contains(':') && !url.contains("://"));
    if !is_address || url.contains('?') {
        return Err(invalid(&"invalid URL"));
    }
    let scheme = if rest.is_some() { "" } else { "mqtt://" };
    let is_complete = rest != Some("");
    let url = url.strip_suffix('/').filter(|_| is_complete).unwrap_or(url);
    let url = format!("{scheme}{url}");
    Options::from_url(&url).map_err(|error| invalid(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(broker: &ExternalBroker) -> Result<Options, ConfigError> {
        broker.options(CLIENT_ID)
    }

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
            ("mqtt://[::1]", "[::1]", 1883, false),
            ("broker.example:1884", "broker.example", 1884, false),
        ] {
            let options = options(&broker(&[url])).unwrap();
            let address = options.addresses().next().unwrap();
            assert_eq!((&*address.host, address.port), (host, port), "{url}");
            assert_eq!((options.tls.is_some(), &*options.client_id), (is_tls, CLIENT_ID), "{url}");
        }
        for url in [
            "http://h",
            "h",
            "h:x",
            "::1",
            "::1:1883",
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
        for url in
            ["mqtt://alice:secret", "alice:secret", "secret", "mqtt://h?secret", "mqtt://h/secret"]
        {
            let error = options(&broker(&["mqtt://h", url])).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains("URL 2"), "{url}: {error}");
        }
    }

    #[test]
    fn configuration_with_an_invalid_url_is_refused_before_it_is_printed() {
        let toml = "[broker]\nbroker = [\"mqtt://alice:secret\"]\n";
        let error = crate::config::Config::from_toml(toml).unwrap().check().unwrap_err();
        assert!(error.key() == Some("broker") && !error.to_string().contains("secret"), "{error}");
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
