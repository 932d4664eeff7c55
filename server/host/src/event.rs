//! Events of a server for its operator.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use humantime::format_rfc3339_seconds;

use crate::reload::Reloaded;

/// A report of a [`Server`](crate::Server) to its operator. Its text is one line.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// Metrics are served at this address.
    MetricsListening(SocketAddr),
    /// Loading a data directory takes longer than a second.
    Loading {
        /// The directory.
        directory: PathBuf,
        /// Bytes of the files in it.
        bytes: u64,
    },
    /// Loading a data directory continues. Reported every five seconds.
    LoadingProgress {
        /// The directory.
        directory: PathBuf,
        /// Number of records that have been loaded.
        records: u64,
    },
    /// Not connected to the external broker after a second. Attempts continue.
    NotConnected {
        /// URLs of the broker.
        brokers: Vec<String>,
        /// Reason of the last failure, if one is known.
        reason: Option<String>,
    },
    /// The broker does not let this server find out whether another store serves there. It starts
    /// nevertheless.
    OtherStoreUnknown {
        /// The reason.
        reason: String,
    },
    /// Requests reach the store.
    Ready(Ready),
    /// This store is a standby.
    Standby {
        /// Name and address of the leader, if there is a leader. The address may be empty.
        leader: Option<(String, String)>,
    },
    /// This store leads.
    Leading {
        /// Number of the term.
        epoch: u64,
    },
    /// This store does not lead any more, or cannot reach etcd. It becomes a standby again.
    LeadershipLost {
        /// The reason.
        reason: String,
    },
    /// This store could not give up its leadership, so the next store waits for the lease.
    NotResigned {
        /// The reason.
        reason: String,
    },
    /// The password file is empty, so users cannot log in.
    NoUsers {
        /// The file.
        path: PathBuf,
    },
    /// Clients can send passwords and tokens to this address without encryption.
    LoginWithoutTls {
        /// Address of the listener.
        address: SocketAddr,
    },
    /// The certificate of this server expires in less than 14 days. Reported once a day.
    CertificateExpiresSoon {
        /// Time of the expiry.
        not_after: SystemTime,
        /// Number of whole days until then.
        days: u64,
    },
    /// The certificate of this server has expired: the server is not ready, and TLS clients cannot
    /// connect. Reported once a day.
    CertificateExpired {
        /// Time of the expiry.
        not_after: SystemTime,
    },
    /// A file is valid, but probably not as intended.
    FileWarning {
        /// The file.
        path: PathBuf,
        /// The warning.
        text: String,
    },
    /// Changed files were reloaded.
    Reloaded(Reloaded),
    /// The server stops.
    Stopping,
}

/// A store that requests reach.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ready {
    /// URLs at which clients can connect: of each listener, or of the external broker.
    pub urls: Vec<String>,
    /// Which clients can connect, and what they may do.
    pub access: String,
    /// Which keys survive a restart, and where. `None` if no key does.
    pub durability: Option<String>,
    /// Number of keys at the start.
    pub keys: usize,
    /// File of the capture, and whether its values are replaced.
    pub capture: Option<(PathBuf, bool)>,
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { urls, access, durability, keys, capture } = self;
        write!(f, "ready on {}; {access}", urls.join(" and "))?;
        if let Some(durability) = durability {
            let plural = if *keys == 1 { "" } else { "s" };
            write!(f, "; {durability}; {keys} key{plural} loaded")?;
        }
        if let Some((path, is_redacted)) = capture {
            let values = if *is_redacted { "with replaced values" } else { "with all values" };
            write!(f, "; captured {values} in {}", path.display())?;
        }
        Ok(())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MetricsListening(address) => write!(f, "metrics on http://{address}/metrics"),
            Self::Loading { directory, bytes } => {
                write!(f, "loading {} ({bytes} bytes)", directory.display())
            }
            Self::LoadingProgress { directory, records } => {
                write!(f, "loading {}: {records} records so far", directory.display())
            }
            Self::NotConnected { brokers, reason } => {
                let reason = reason.as_deref().unwrap_or("no response");
                match &**brokers {
                    [broker] => write!(f, "not connected to {broker} yet ({reason}); retrying"),
                    brokers => write!(
                        f,
                        "not connected to any of {} brokers yet ({reason}); retrying",
                        brokers.len()
                    ),
                }
            }
            Self::OtherStoreUnknown { reason } => {
                write!(f, "no check for another store at this broker: {reason}")
            }
            Self::Ready(ready) => ready.fmt(f),
            Self::Standby { leader: None } => f.write_str("standby; no leader is known"),
            Self::Standby { leader: Some((name, address)) } if address.is_empty() => {
                write!(f, "standby; {name} leads")
            }
            Self::Standby { leader: Some((name, address)) } => {
                write!(f, "standby; {name} leads, at {address}")
            }
            Self::Leading { epoch } => write!(f, "leading, in epoch {epoch}"),
            Self::LeadershipLost { reason } => write!(f, "{reason}; standby again"),
            Self::NotResigned { reason } => {
                write!(
                    f,
                    "leadership not resigned, so the next store waits for the lease: {reason}"
                )
            }
            Self::NoUsers { path } => {
                write!(f, "{}: no users, so no user can log in", path.display())
            }
            Self::LoginWithoutTls { address } => {
                write!(
                    f,
                    "clients send passwords and tokens to {address} without TLS: use listen-tls"
                )
            }
            Self::CertificateExpiresSoon { not_after, days } => {
                let time = format_rfc3339_seconds(*not_after);
                write!(f, "the server certificate expires on {time}, ")?;
                match days {
                    0 => f.write_str("in less than a day: renew it"),
                    1 => f.write_str("in 1 day: renew it"),
                    _ => write!(f, "in {days} days: renew it"),
                }
            }
            Self::CertificateExpired { not_after } => {
                write!(
                    f,
                    "the server certificate expired on {}: renew it",
                    format_rfc3339_seconds(*not_after)
                )
            }
            Self::FileWarning { path, text } => write!(f, "{}: {text}", path.display()),
            Self::Reloaded(reloaded) => {
                for (number, report) in reloaded.reports.iter().enumerate() {
                    let separator = if number == 0 { "" } else { "; " };
                    write!(f, "{separator}{report}")?;
                }
                Ok(())
            }
            Self::Stopping => f.write_str("stopping"),
        }
    }
}

/// Receives the events of a server.
#[derive(Clone)]
pub(crate) struct Observer(Arc<dyn Fn(&Event) + Send + Sync>);

impl Observer {
    pub(crate) fn new(observe: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    pub(crate) fn report(&self, event: &Event) {
        (self.0)(event);
    }
}

impl Default for Observer {
    /// Logs each event.
    fn default() -> Self {
        Self::new(|event| tracing::info!("{event}"))
    }
}
