//! The comparisons. A suite is one module and one entry of [`SUITES`].

mod codec;
mod durable;
mod e2e;
mod embedded;
mod footprint;
mod hlc;
mod locks;
mod observed;
mod packets;
mod sim;
#[cfg(feature = "etcd")]
mod standbys;
mod store;

use crate::bare::Failure;
use crate::report::Report;

/// A set of comparisons that is run as one.
pub struct Suite {
    /// What it is called on the command line; the names of its lines begin with it.
    pub name: &'static str,
    /// What it compares, in a few words.
    pub about: &'static str,
    /// Runs it. It asserts that all sides agree, and panics when they do not, before it times them.
    pub run: fn(&mut Report<'_>) -> Result<(), Failure>,
}

/// All suites.
pub const SUITES: &[Suite] = &[
    codec::SUITE,
    packets::SUITE,
    hlc::SUITE,
    store::SUITE,
    sim::SUITE,
    e2e::SUITE,
    embedded::SUITE,
    durable::SUITE,
    #[cfg(feature = "etcd")]
    standbys::SUITE,
    locks::SUITE,
    observed::SUITE,
    footprint::SUITE,
];

/// The suite of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}
