//! The comparisons. A suite is one module and one entry of [`SUITES`].

mod codec;
mod durable;
mod e2e;
mod embedded;
mod fan_out;
mod footprint;
mod hlc;
mod locks;
mod million;
mod observed;
mod packets;
mod sim;
#[cfg(feature = "etcd")]
mod standbys;
mod store;

use crate::bare::Failure;
use crate::report::Report;

/// Comparisons that run together.
pub struct Suite {
    /// Name on the command line. The names of all rows begin with it.
    pub name: &'static str,
    /// Short description with units.
    pub about: &'static str,
    /// Runs the suite. Before it measures, it asserts that the results of all sides are equal.
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
    fan_out::SUITE,
    durable::SUITE,
    million::SUITE,
    #[cfg(feature = "etcd")]
    standbys::SUITE,
    locks::SUITE,
    observed::SUITE,
    footprint::SUITE,
];

/// Returns the suite with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}
