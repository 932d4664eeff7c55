//! The policy file.

use std::path::PathBuf;

use statestore_policy::Policy;

use super::Reload;
use super::report::{FileKind, PolicyWarning, Summary};
use crate::access::shared_policy::SharedPolicy;
use crate::files::LoadError;
use crate::files::ReloadFile;

/// Maximum length of a policy file in bytes, more than a policy may have.
const POLICY_FILE_MAX: u64 = 2 << 20;

/// Properties that clients have here, by which a policy can name them in addition to client ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Principals {
    /// Clients have user names: from passwords, certificates or tokens.
    pub user_names: bool,
    /// Clients have attributes: from certificates or tokens.
    pub attributes: bool,
}

/// A policy file and its policy.
#[derive(Debug)]
pub struct PolicyFile {
    file: ReloadFile,
    principals: Principals,
    policy: SharedPolicy,
    warnings: Vec<PolicyWarning>,
}

impl PolicyFile {
    /// Reads a policy of at most 2 MiB, for clients with these properties. Blocks.
    ///
    /// # Errors
    /// [`LoadError`] if the file cannot be read or is invalid.
    pub fn load(path: impl Into<PathBuf>, principals: Principals) -> Result<Self, LoadError> {
        let file = ReloadFile::new(path, POLICY_FILE_MAX);
        let policy = parse(&file)?;
        let warnings = find_warnings(&policy, principals);
        Ok(Self { file, principals, policy: policy.into(), warnings })
    }

    /// Returns the policy, for [`Options::policy`](crate::Options::policy).
    #[must_use]
    pub const fn policy(&self) -> &SharedPolicy {
        &self.policy
    }

    /// Returns the warnings about the policy that was loaded first. Those about a reloaded policy
    /// are in its [`Summary`].
    #[must_use]
    pub fn warnings(&self) -> &[PolicyWarning] {
        &self.warnings
    }
}

fn parse(file: &ReloadFile) -> Result<Policy, LoadError> {
    let text = file.read_text().map_err(|error| LoadError::new(file, error))?;
    Policy::parse(&text).map_err(|error| LoadError::new(file, error))
}

fn find_warnings(policy: &Policy, principals: Principals) -> Vec<PolicyWarning> {
    let (count, names) = (policy.warnings().len(), policy.names());
    [
        (count > 0, PolicyWarning::Rules(count)),
        (names.user_names && !principals.user_names, PolicyWarning::UserNamesUnused),
        (names.attributes && !principals.attributes, PolicyWarning::AttributesUnused),
    ]
    .into_iter()
    .filter_map(|(applies, warning)| applies.then_some(warning))
    .collect()
}

impl Reload for PolicyFile {
    fn kind(&self) -> FileKind {
        FileKind::Policy
    }

    fn files(&self) -> Vec<&ReloadFile> {
        vec![&self.file]
    }

    fn reload(&self) -> Result<Summary, LoadError> {
        let policy = parse(&self.file)?;
        let warnings = find_warnings(&policy, self.principals);
        let summary = Summary::Policy { rules: policy.len(), warnings };
        self.policy.replace(policy);
        Ok(summary)
    }
}
