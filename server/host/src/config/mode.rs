//! Modes of a server.

use super::{Config, ConfigError, Etcd, ExternalBroker};

/// Mode of a server: the broker to which its clients connect, and whether it has standbys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode<'a> {
    /// A store in the embedded broker.
    EmbeddedBroker,
    /// A store that connects to an external broker.
    ExternalBroker(&'a ExternalBroker),
    /// One of several stores over one etcd. The one that leads is in its embedded broker, or
    /// connects to an external one.
    Cluster {
        /// The etcd.
        etcd: &'a Etcd,
        /// The external broker, if there is one.
        broker: Option<&'a ExternalBroker>,
    },
}

impl Config {
    /// Returns the mode that the settings describe.
    ///
    /// # Errors
    /// [`ConfigError`] if settings contradict each other; see [`check`](Self::check).
    pub fn mode(&self) -> Result<Mode<'_>, ConfigError> {
        self.check()?;
        let broker = (!self.broker.broker.is_empty()).then_some(&self.broker);
        Ok(match (self.etcd.etcd.is_empty(), broker) {
            (false, broker) => Mode::Cluster { etcd: &self.etcd, broker },
            (true, Some(broker)) => Mode::ExternalBroker(broker),
            (true, None) => Mode::EmbeddedBroker,
        })
    }
}
