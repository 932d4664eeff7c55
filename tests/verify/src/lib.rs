//! A conformance kit for stores that speak the MQTT 5 state store protocol.
//!
//! It tries a store from outside, as its clients would, rule by rule: [`CASES`] is the list. It needs a broker with a store
//! behind it, whoever wrote that and in whatever language; nothing in it knows an implementation. `statestore verify
//! --broker URL` is this crate as a command.
//!
//! A case [passes](Verdict::Pass), or [fails](Verdict::Fail), or the store [differs](Verdict::Differs): it does something
//! legal that is not what this project's store does. That is so where the public page and the deployed clients disagree,
//! and where both are silent ([`Source::Choice`]), so a run against a store settles what that store has chosen.
//!
//! A run writes keys below one prefix alone, and [removes](Run::finish) them. Its requests, some hundreds of them, come one
//! after the other.
//!
//! ```no_run
//! use std::sync::Arc;
//! use statestore_verify::{CASES, Run, Settings};
//! # #[cfg(feature = "client")]
//! use statestore_verify::over_client::{Broker, Options};
//!
//! # #[cfg(feature = "client")]
//! # async fn example() -> Result<(), statestore_verify::Unreachable> {
//! let place = Broker(Options::new("", "localhost", 1883));
//! let mut run = Run::start(Arc::new(place), Settings::new("verify-7f3a")).await?;
//! for case in CASES.iter().filter(|case| case.is_named("fence")) {
//!     run.case(case).await;
//! }
//! let report = run.finish().await;
//! assert!(report.is_conformant(), "{:#?}", report.cases);
//! # Ok(())
//! # }
//! ```
//!
//! # What it cannot try
//!
//! That a request which has expired in the queue of a store is dropped; what survives a restart; quotas; who may do what;
//! and whatever takes longer than a second or two, such as long leases, or how long answers to duplicates are kept.
#![forbid(unsafe_code)]

mod ask;
mod case;
mod cases;
mod clean_up;
mod expect;
#[cfg(feature = "client")]
pub mod over_client;
mod report;
mod run;
mod trial;
pub mod vectors;
mod version;
pub mod wire;

pub use ask::Dialect;
pub use case::{Case, Source};
pub use cases::CASES;
pub use report::{CaseReport, Finding, Report, Verdict};
pub use run::{Run, Settings, Unreachable};

/// The program in the README of this package.
#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../README.md")]
struct Readme;
