//! What a case is.

use std::fmt;
use std::pin::Pin;

use crate::trial::{Done, Trial};

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The public protocol page.
    Page,
    /// What deployed clients need, or do.
    Wire,
    /// Both are silent, so stores may differ.
    Choice,
}

impl Source {
    /// One word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Wire => "wire",
            Self::Choice => "choice",
        }
    }
}

type Run = for<'a> fn(&'a mut Trial) -> Pin<Box<dyn Future<Output = Done> + Send + 'a>>;

/// One rule of the protocol, and how it is tried.
pub struct Case {
    /// Section and name, such as `fence/lower`.
    pub name: &'static str,
    /// Where the rule comes from.
    pub source: Source,
    /// The rule, in a sentence.
    pub rule: &'static str,
    pub(crate) run: Run,
}

impl Case {
    pub(crate) const fn new(
        name: &'static str,
        source: Source,
        rule: &'static str,
        run: Run,
    ) -> Self {
        Self { name, source, rule, run }
    }

    /// Returns whether a name is that of this case, or of its section.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        let section = self.name.split('/').next();
        self.name == name || section == Some(name)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}
