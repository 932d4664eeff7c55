//! Which settings require or exclude each other, and which values are in range.

use std::time::Duration;

use serde::Serialize;
use statestore_proto::glob::Pattern;
use statestore_proto::hlc::NodeId;
use statestore_proto::limits::CLOCK_DRIFT_MAX;

use super::{Config, ConfigError, ExternalBroker, Login, expiry, external};

/// Name of a setting, and whether it is set.
type Setting = (&'static str, bool);

impl Config {
    /// Checks ranges, and that no setting contradicts another one. Files are not opened.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] with the name of the setting.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_sections()?;
        self.check_broker_requirements()?;
        self.check_store_requirements()?;
        self.check_ranges()
    }

    /// A section of another mode must be as by default.
    fn check_sections(&self) -> Result<(), ConfigError> {
        let default = Self::default();
        if self.broker.broker.is_empty() {
            unused(&self.broker, &default.broker, "it is for an external broker: give broker too")?;
        } else {
            let why = "it is for the embedded broker: leave it out, or leave out broker";
            unused(&self.listen, &default.listen, why)?;
            unused(&self.tls, &default.tls, why)?;
            unused(&self.login, &default.login, why)?;
            unused(&self.broker_limits, &default.broker_limits, why)?;
        }
        if self.etcd.etcd.is_empty() {
            unused(&self.etcd, &default.etcd, "it is for a cluster: give etcd too")?;
        } else if self.storage.data_dir.is_some() {
            return Err(ConfigError::setting("data-dir", "use either data-dir or etcd"));
        } else if self.broker.take_over {
            let reason = "leave it out: with etcd, only the leader connects to the broker";
            return Err(ConfigError::setting("take-over", reason));
        }
        if self.capture.capture.is_none() {
            unused(&self.capture, &default.capture, "it requires capture")?;
        }
        Ok(())
    }

    /// Each setting of the embedded broker that requires another one.
    fn check_broker_requirements(&self) -> Result<(), ConfigError> {
        let Self { listen, tls, login, .. } = self;
        let default = Login::default();
        let listen_tls = ("listen-tls", !listen.listen_tls.is_empty());
        let websocket_tls = ("listen-websocket-tls", !listen.listen_websocket_tls.is_empty());
        let websocket = !listen.listen_websocket.is_empty() || websocket_tls.1;
        let origin = ("websocket-origin", !listen.websocket_origin.is_empty());
        let cert = ("listen-tls-cert", tls.listen_tls_cert.is_some());
        let key = ("listen-tls-key", tls.listen_tls_key.is_some());
        let client_ca = ("listen-tls-client-ca", tls.listen_tls_client_ca.is_some());
        let crl = ("listen-tls-crl", tls.listen_tls_crl.is_some());
        let require_crl = ("listen-tls-require-crl", tls.listen_tls_require_crl);
        let user = ("certificate-user", login.certificate_user.is_some());
        let attributes = ("certificate-attributes", login.certificate_attributes.is_some());
        let keys = ("service-account-keys", login.service_account_keys.is_some());
        let issuer = ("service-account-issuer", login.service_account_issuer.is_some());
        let audience = (
            "service-account-audience",
            login.service_account_audience != default.service_account_audience,
        );
        let no_binding = ("no-client-id-binding", login.no_client_id_binding);
        let users = (
            "password-file, certificate-user or service-account-keys",
            login.password_file.is_some() || user.1 || keys.1,
        );
        check_all(&[
            (listen_tls, cert),
            (websocket_tls, cert),
            (origin, ("listen-websocket", websocket)),
            (cert, key),
            (cert, ("listen-tls", listen_tls.1 || websocket_tls.1)),
            (key, cert),
            (client_ca, cert),
            (require_crl, crl),
            (crl, client_ca),
            (user, client_ca),
            (attributes, user),
            (keys, issuer),
            (issuer, keys),
            (audience, keys),
            (no_binding, users),
        ])
    }

    /// Each other setting that requires or excludes another one.
    fn check_store_requirements(&self) -> Result<(), ConfigError> {
        let Self { listen, policy, storage, etcd, http, broker, store, .. } = self;
        let durable = ("data-dir or etcd", storage.data_dir.is_some() || !etcd.etcd.is_empty());
        let has_policy = ("policy", policy.policy.is_some());
        let has_broker = ("broker", !broker.broker.is_empty());
        let trust = ("trust-claimed-ids", policy.trust_claimed_ids);
        let metrics = ("metrics-listen", http.metrics_listen.is_some());
        let etcd_user = ("etcd-user", etcd.etcd_user.is_some());
        let etcd_cert = ("etcd-tls-cert", etcd.etcd_tls_cert.is_some());
        let etcd_key = ("etcd-tls-key", etcd.etcd_tls_key.is_some());
        check_all(&[
            (trust, has_policy),
            (trust, has_broker),
            (("durable", storage.durable.is_some()), durable),
            (("durable-keys", !storage.durable_keys.is_empty()), durable),
            (
                ("min-free-space", storage.min_free_space.is_some()),
                ("data-dir", storage.data_dir.is_some()),
            ),
            (("traffic", http.traffic), metrics),
            (("http-allowed-hosts", !http.http_allowed_hosts.is_empty()), metrics),
            (etcd_user, ("etcd-password", etcd.etcd_password.is_some())),
            (etcd_cert, etcd_key),
            (etcd_key, etcd_cert),
            (etcd_cert, ("etcd-tls-ca", etcd.etcd_tls_ca.is_some())),
        ])?;
        broker.check()?;
        let anonymous = ("allow-anonymous", listen.allow_anonymous);
        let (seed, cluster) = (("seed", store.seed.is_some()), ("etcd", !etcd.etcd.is_empty()));
        exclude_all(&[(anonymous, has_policy), (seed, cluster)])?;
        if has_policy.1 && has_broker.1 && !trust.1 {
            return Err(ConfigError::setting(
                "policy",
                "with an external broker client ids are not verified, so a policy protects \
                 nothing; if the access rules of the broker keep clients from claiming other \
                 client ids, give trust-claimed-ids",
            ));
        }
        Ok(())
    }

    fn check_ranges(&self) -> Result<(), ConfigError> {
        let Self { broker_limits, limits, storage, store, etcd, .. } = self;
        for (key, value, least) in [
            ("max-connections", u64::from(broker_limits.max_connections), 1),
            ("max-address-connections", u64::from(broker_limits.max_address_connections), 1),
            ("max-sessions", u64::from(broker_limits.max_sessions), 1),
            ("max-subscriptions", u64::from(broker_limits.max_subscriptions), 1),
            ("max-broker-memory", broker_limits.max_broker_memory, 1 << 20),
            ("max-client-memory", broker_limits.max_client_memory, 64 << 10),
            ("rate-limit", broker_limits.rate_limit.map_or(1, u64::from), 1),
            ("client-quota-percent", u64::from(limits.client_quota_percent), 1),
            ("max-keys", limits.max_keys as u64, 1),
            ("max-bytes", limits.max_bytes as u64, 1),
        ] {
            if value < least {
                return Err(ConfigError::setting(key, format!("it must be at least {least}")));
            }
        }
        if limits.client_quota_percent > 100 {
            return Err(ConfigError::setting("client-quota-percent", "it must be at most 100"));
        }
        if !(Duration::from_secs(1)..=CLOCK_DRIFT_MAX).contains(&limits.max_clock_drift) {
            return Err(ConfigError::setting("max-clock-drift", "it must be from 1s to 60s"));
        }
        if !(Duration::from_secs(2)..=Duration::from_secs(600)).contains(&etcd.etcd_lease) {
            return Err(ConfigError::setting("etcd-lease", "it must be from 2s to 600s"));
        }
        for pattern in &storage.durable_keys {
            Pattern::new(pattern.as_bytes()).map_err(|error| {
                ConfigError::setting("durable-keys", format!("{pattern}: {error}"))
            })?;
        }
        expiry::rules(store)?;
        NodeId::new(&store.node_id)
            .map_err(|error| ConfigError::setting("node-id", error.to_string()))?;
        let (hosts, origins) = (&self.http.http_allowed_hosts, &self.listen.websocket_origin);
        (1..).zip(hosts).try_for_each(|(number, name)| check_host_name(number, name))?;
        (1..).zip(origins).try_for_each(|(number, origin)| check_origin(number, origin))
    }
}

impl ExternalBroker {
    /// Checks that no setting contradicts another one. Files are not opened.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let password = ("password", self.password.is_some());
        let token = ("service-account-token-file", self.service_account_token_file.is_some());
        let cert = ("tls-cert", self.tls_cert.is_some());
        let key = ("tls-key", self.tls_key.is_some());
        let key_password = ("tls-key-password-file", self.tls_key_password_file.is_some());
        let user = ("user", self.user.is_some());
        check_all(&[(password, user), (cert, key), (key, cert), (key_password, key)])?;
        exclude_all(&[(password, token)])?;
        // The settings may be printed. An invalid URL may contain a password.
        external::parse_urls(self).map(drop)
    }
}

/// Fails with the first setting that another one excludes.
fn exclude_all(pairs: &[(Setting, Setting)]) -> Result<(), ConfigError> {
    for ((key, is_set), (other, is_other)) in pairs {
        if *is_set && *is_other {
            return Err(ConfigError::setting(key, format!("it excludes {other}")));
        }
    }
    Ok(())
}

/// Fails with the first setting whose requirement is not met.
fn check_all(requirements: &[(Setting, Setting)]) -> Result<(), ConfigError> {
    for ((key, is_set), (required, is_met)) in requirements {
        if *is_set && !is_met {
            return Err(ConfigError::setting(key, format!("it requires {required}")));
        }
    }
    Ok(())
}

/// An origin has a scheme, a host and an optional port, as browsers send it. The error contains its
/// number instead: a URL in a wrong place may contain a password.
fn check_origin(number: usize, origin: &str) -> Result<(), ConfigError> {
    let host = origin.split_once("://").map(|(_, host)| host);
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '*', ' ']);
    if origin == "*" || origin == "null" || host.is_some_and(is_host) {
        return Ok(());
    }
    Err(ConfigError::setting(
        "websocket-origin",
        format!(
            "value {number} is not an origin such as https://panel.example or \
             http://localhost:8080, or *"
        ),
    ))
}

/// A host name has neither scheme nor port.
fn check_host_name(number: usize, name: &str) -> Result<(), ConfigError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_allowed);
    if name.split('.').all(is_label) {
        return Ok(());
    }
    let reason = format!("value {number} is not a host name such as store.example, without a port");
    Err(ConfigError::setting("http-allowed-hosts", reason))
}

/// Fails with the first setting of a section that differs from its default.
fn unused<S: Serialize + PartialEq>(
    section: &S,
    default: &S,
    why: &str,
) -> Result<(), ConfigError> {
    if section == default {
        return Ok(());
    }
    let table = |section: &S| toml::Table::try_from(section).unwrap_or_default();
    let default = table(default);
    let first = table(section).into_iter().find(|(key, value)| default.get(key) != Some(value));
    Err(ConfigError::setting(first.as_ref().map_or("", |(key, _)| key), why))
}
