//! Results of a reload.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::files::LoadError;

/// Kind of a setting that comes from files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FileKind {
    /// Users and their password hashes.
    Users,
    /// Certificate, key, client CAs and revocation lists.
    Tls,
    /// Keys of the issuer of service account tokens.
    ServiceAccountKeys,
    /// Attributes of client certificates.
    CertificateAttributes,
    /// The authorization policy.
    Policy,
}

impl FileKind {
    /// Returns a name for labels of metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Users => "users",
            Self::Tls => "tls",
            Self::ServiceAccountKeys => "service_account_keys",
            Self::CertificateAttributes => "certificate_attributes",
            Self::Policy => "policy",
        }
    }
}

/// A setting that a reload has put in force.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Summary {
    /// Users and their password hashes.
    Users {
        /// Number of users.
        users: usize,
    },
    /// Certificate, key, client CAs and revocation lists.
    Tls {
        /// Expiry of the certificate of this broker.
        not_after: Option<SystemTime>,
        /// Warnings about the files.
        #[cfg(feature = "tls")]
        warnings: Vec<crate::TlsWarning>,
    },
    /// Keys of the issuer of service account tokens.
    ServiceAccountKeys {
        /// Number of keys.
        keys: usize,
    },
    /// Attributes of client certificates.
    CertificateAttributes {
        /// Number of subjects with attributes.
        subjects: usize,
    },
    /// The authorization policy.
    Policy {
        /// Number of rules.
        rules: usize,
        /// Warnings about the policy.
        warnings: Vec<PolicyWarning>,
    },
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Users { users } => write!(f, "{} from now on", Counted(*users, "user")),
            #[cfg(feature = "tls")]
            Self::Tls { not_after: Some(time), .. } => {
                let time = humantime::format_rfc3339_seconds(*time);
                write!(f, "the certificate is valid until {time}")
            }
            Self::Tls { .. } => f.write_str("the certificate is valid"),
            Self::ServiceAccountKeys { keys } => {
                write!(f, "{} from now on", Counted(*keys, "key"))
            }
            Self::CertificateAttributes { subjects } => {
                write!(f, "attributes of {}", Counted(*subjects, "subject"))
            }
            Self::Policy { rules, .. } => write!(f, "{}", Counted(*rules, "rule")),
        }
    }
}

/// A number of things.
struct Counted(usize, &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, noun) = self;
        write!(f, "{count} {noun}{}", if *count == 1 { "" } else { "s" })
    }
}

/// Result of one reload of one setting. Its text is one line for a log.
#[derive(Debug)]
pub struct Report {
    /// Kind of the setting.
    pub kind: FileKind,
    /// Paths of all its files.
    pub paths: Vec<PathBuf>,
    /// The setting that is in force now, or the reason why nothing has changed.
    pub result: Result<Summary, LoadError>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.result {
            Err(error) => write!(f, "{error}; nothing has changed"),
            Ok(summary) => {
                for (number, path) in self.paths.iter().enumerate() {
                    let separator = if number == 0 { "" } else { ", " };
                    write!(f, "{separator}{}", path.display())?;
                }
                write!(f, ": read again: {summary}")
            }
        }
    }
}

/// Result of a reload of several settings.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Reloaded {
    /// One report for each setting.
    pub reports: Vec<Report>,
    /// Number of clients that were disconnected because their permissions have changed.
    pub disconnected: usize,
}

/// A policy that is valid, but probably not as intended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyWarning {
    /// The policy itself has this many [warnings](statestore_policy::Policy::warnings).
    Rules(usize),
    /// Rules name user names, which clients lack.
    UserNamesUnused,
    /// Rules name attributes, which clients lack.
    AttributesUnused,
}

impl fmt::Display for PolicyWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules(1) => f.write_str("1 warning"),
            Self::Rules(count) => write!(f, "{count} warnings"),
            Self::UserNamesUnused => {
                f.write_str("rules for user names apply to no client, because clients lack them")
            }
            Self::AttributesUnused => {
                f.write_str("rules for attributes apply to no client, because clients lack them")
            }
        }
    }
}
