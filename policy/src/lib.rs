//! Who may do what with a state store and its broker: the deployed authorization document, as a pure function.
//!
//! A [`Policy`] is read from the document, JSON or YAML, and answers for a [`Principal`] and an [`Action`] whether it is
//! allowed and by which rule, or which rule came nearest ([`Policy::decide`]). What no rule allows is refused.
//! [`Policy::rights`] are what is left of it for one principal, for whoever asks often.
//!
//! ```
//! use statestore_policy::{Action, Policy, Principal};
//!
//! let policy = Policy::parse(
//!     r#"
//!     rules:
//!       - principals:
//!           attributes:
//!             - group: sensors
//!         stateStoreResources:
//!           - method: ReadWrite
//!             keyType: Pattern
//!             keys: ["readings/{principal.username}/*"]
//!     "#,
//! )?;
//! let lamp = Principal {
//!     client_id: "lamp",
//!     user_name: Some("lamp"),
//!     attributes: &[("group", "sensors")],
//! };
//! assert!(policy.decide(&lamp, &Action::Write(b"readings/lamp/lux")).is_allowed());
//! let refused = policy.decide(&lamp, &Action::Read(b"readings/door/open"));
//! assert_eq!(refused.to_string(), "refused; line 7 (rule 1, resource 1 of stateStoreResources) allows it for other keys");
//! # Ok::<(), statestore_policy::PolicyError>(())
//! ```
//!
//! # The document
//!
//! A `BrokerAuthorization` of Azure IoT Operations, in any of the forms in which there are such documents: the Kubernetes
//! resource, that of Azure Resource Manager, `authorizationPolicies` alone, or the rules alone. Fields that it does not have
//! are errors, and so are anchors, aliases and tags of YAML.
//!
//! | Field | Meaning |
//! |---|---|
//! | `rules` | each allows something to somebody; there are no rules that forbid |
//! | `principals` | `usernames`, `clientIds`, `attributes`: it is for whoever is named by any of them |
//! | `usernames`, `clientIds` | exact; `*` alone is whoever has one |
//! | `attributes` | a list of tables; one must be true in all of its pairs |
//! | `brokerResources` | `method` is `Connect`, `Publish` or `Subscribe` |
//! | … `clientIds` | of Connect: patterns, one of which the client id must match; without any, it may be anything |
//! | … `topics` | of Publish and Subscribe: topic filters |
//! | `stateStoreResources` | `method` is `Read` (GET, KEYNOTIFY, and SCAN for what it lists), `Write` (SET, DEL, VDEL), `ReadWrite`, or [`Fence`](#fences) |
//! | … `keyType` | of `keys`: `Pattern`, the [glob of SCAN](statestore_proto::glob), if it is not given; `String`, exact; `Binary`, exact, in Base64 |
//! | `cache`, `enableCache` | have no effect here |
//!
//! In topics, in client ids of Connect, and in keys that are not binary, `{principal.clientId}`, `{principal.username}` and
//! `{principal.attributes.NAME}` stand for what the principal has, character by character: wildcards in them mean nothing.
//! For a principal that has none, or an empty one, the whole entry matches nothing. In a topic, such a word is a whole level,
//! and one with `/`, `+` or `#` in it matches nothing.
//!
//! A client may subscribe to a filter if one of its `topics` covers it: if that matches whatever the filter matches.
//!
//! # Fences
//!
//! A SET with a fencing token shuts out whoever writes that key without one, or with a lower one, until it is deleted. The
//! method `Fence` of `stateStoreResources` says which keys a client may write with a token. It is ours: deployed brokers
//! do not know it, and refuse a document that has it.
//!
//! * A document without any `Fence` says nothing of tokens: what may be written may be written with one, as with deployed
//!   brokers.
//! * In a document with one, a write with a token is allowed if the write is, and a `Fence` of the principal has the key
//!   too. `Fence` alone lets nobody write.
//!
//! Taking a lock needs no token; writing under it does, so `Fence` belongs to the keys that locks guard.
//!
//! # Choices
//!
//! What deployed documents say nothing about is decided so that nothing is allowed by surprise: an empty `principals` is
//! nobody. `*` as a name is ours.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod ask;
mod cases;
mod certificates;
mod decision;
mod document;
mod error;
mod lint;
mod parse;
mod rights;
mod rule;
mod template;

pub use ask::{Action, Principal};
pub use cases::{Case, CaseError, Cases};
pub use certificates::{CertificateAttributes, Subject, SubjectError};
pub use decision::{Decision, Lacks, Place};
pub use error::PolicyError;
pub use lint::{Names, Warning};
pub use rights::Rights;
pub use rule::{Policy, Section};

/// The program in the README of this package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
