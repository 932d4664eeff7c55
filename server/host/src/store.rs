//! The store of a configuration.

use statestore_proto::glob::Pattern;
use statestore_proto::hlc::NodeId;
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{self, WordCase};
use statestore_proto::store::{DialectPolicy, KeyPredicate, StoreConfig};

use crate::access::shared_policy::SharedPolicy;
use crate::config::expiry;
use crate::config::{Config, ConfigError, Dialect};

/// Returns the configuration of the store.
pub(crate) fn store_config(
    config: &Config,
    policy: Option<&SharedPolicy>,
    limits: StoreLimits,
) -> Result<StoreConfig, ConfigError> {
    let Config { store: settings, limits: limit_settings, storage, broker, .. } = config;
    let node_id = NodeId::new(&settings.node_id)
        .map_err(|error| ConfigError::setting("node-id", error.to_string()))?;
    let store = StoreConfig::new(fastrand::u64(..))
        .node_id(node_id)
        .limits(StoreLimits {
            keys_max: limit_settings.max_keys,
            bytes_max: limit_settings.max_bytes,
            client_percent: limit_settings.client_quota_percent,
            ..limits
        })
        .clock_drift_max(limit_settings.max_clock_drift)
        .map_err(|error| ConfigError::setting("max-clock-drift", error.to_string()))?
        .explain(settings.explain_refusals)
        .dialect(match settings.dialect {
            Dialect::Auto => DialectPolicy::Auto,
            Dialect::Spec => DialectPolicy::Pinned(message::Dialect::Spec),
            Dialect::Deployed => DialectPolicy::Pinned(message::Dialect::Deployed),
        })
        .word_case(if settings.case_sensitive_verbs { WordCase::Upper } else { WordCase::Any });
    let expiries = expiry::rules(settings)?;
    let store = match expiries.is_empty() {
        true => store,
        false => store.expiry_policy(move |key, requested| expiries.of(key, requested)),
    };
    let store = match &*storage.durable_keys {
        [] => store,
        patterns => store.durable_keys(key_predicate(patterns)),
    };
    Ok(match policy {
        None => store,
        Some(policy) if !broker.broker.is_empty() => {
            store.authorizer(policy.authorizer_of_claims())
        }
        Some(policy) => store.authorizer(policy.authorizer()),
    })
}

/// Returns whether one of these patterns matches a key. The patterns are valid.
fn key_predicate(patterns: &[String]) -> KeyPredicate {
    let patterns = patterns.to_vec();
    Box::new(move |key| {
        let mut patterns = patterns.iter().map(String::as_bytes).map(Pattern::new);
        patterns.any(|pattern| pattern.is_ok_and(|pattern| pattern.matches(key)))
    })
}
