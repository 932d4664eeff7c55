//! A case: one rule of the protocol with its test.

use std::fmt;
use std::pin::Pin;

use crate::trial::{Done, Trial};

/// The origin of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The public specification.
    Spec,
    /// The behaviour of deployed clients.
    Wire,
    /// The specification and the clients leave it open, so stores may differ.
    Choice,
}

impl Source {
    /// The name of the origin, as one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spec => "spec",
            Self::Wire => "wire",
            Self::Choice => "choice",
        }
    }
}

type Run = for<'a> fn(&'a mut Trial) -> Pin<Box<dyn Future<Output = Done> + Send + 'a>>;

/// A rule of the protocol and the function that tests it.
pub struct Case {
    /// Section and name, such as `fence/lower`.
    pub name: &'static str,
    /// Origin of the rule.
    pub source: Source,
    /// The rule as a sentence.
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

    /// Returns whether `name` is the name of this case or of its section.
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
