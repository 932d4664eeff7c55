//! A conformance suite for stores of the MQTT 5 state store protocol.
//!
//! It tests a store from outside, as its clients would, rule by rule: [`CASES`] is the list. It
//! needs a broker with a store, in any language; it does not depend on any implementation. The
//! command `statestore verify --broker URL` runs this crate.
//!
//! The verdict of a case is [pass](Verdict::Pass), [fail](Verdict::Fail), or
//! [differs](Verdict::Differs). A store differs if its behaviour is legal but not that of this
//! project's store. This is possible where the specification and the deployed clients disagree or
//! leave the rule open ([`Source::Choice`]).
//!
//! A run writes only keys below one prefix, and [removes](Run::finish) them. It sends some hundreds
//! of requests, one at a time.
//!
//! ```no_run
//! use std::sync::Arc;
//! use statestore_verify::{CASES, Run, Settings};
//! # #[cfg(feature = "client")]
//! use statestore_verify::over_client::{Broker, Options};
//!
//! # #[cfg(feature = "client")]
//! # async fn example() -> Result<(), statestore_verify::Unreachable> {
//! let connector = Broker(Options::new("", "localhost", 1883));
//! let mut run = Run::start(Arc::new(connector), Settings::new("verify-7f3a")).await?;
//! for case in CASES.iter().filter(|case| case.is_named("fence")) {
//!     run.case(case).await;
//! }
//! let report = run.finish().await;
//! assert!(report.is_conformant(), "{:#?}", report.cases);
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! The suite does not test the expiry of requests in the queue of the store, restarts, quotas and
//! authorization. It also omits everything that takes longer than a second or two, such as long
//! leases and the age limit of the deduplication cache.
#![forbid(unsafe_code)]

mod case;
mod cases;
mod clean_up;
mod expect;
#[cfg(feature = "client")]
pub mod over_client;
mod report;
mod request;
mod run;
mod trial;
pub mod vectors;
mod version;
pub mod wire;

pub use case::{Case, Source};
pub use cases::CASES;
pub use report::{CaseReport, Finding, Report, Verdict};
pub use request::Dialect;
pub use run::{Run, Settings, Unreachable};

/// Compiles the program in the README of this package.
#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../README.md")]
struct Readme;
