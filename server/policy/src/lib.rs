//! Authorization for a state store and its broker: evaluates the deployed authorization document as
//! a pure function.
//!
//! A [`Policy`] is parsed from the document, JSON or YAML. [`Policy::decide`] returns whether a
//! [`Principal`] may perform an [`Action`], and the rule that allows it or came nearest. An action
//! that no rule allows is refused. [`Policy::rights`] returns the part of a policy that applies to
//! one principal, for repeated decisions.
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
//! A `BrokerAuthorization` of Azure IoT Operations in any of its published forms: the Kubernetes
//! resource, the resource of Azure Resource Manager, `authorizationPolicies` alone, or the rules
//! alone. Unknown fields are errors, and so are anchors, aliases and tags of YAML.
//!
//! | Field | Meaning |
//! |---|---|
//! | `rules` | each allows some principals some actions; no rule can forbid an action |
//! | `principals` | `usernames`, `clientIds`, `attributes`: the rule applies if any entry matches |
//! | `usernames`, `clientIds` | exact; `*` alone matches any non-empty name |
//! | `attributes` | a list of tables; at least one table must match in all of its pairs |
//! | `brokerResources` | `method` is `Connect`, `Publish` or `Subscribe` |
//! | … `clientIds` | for Connect: patterns, one of which must match; absent means any |
//! | … `topics` | for Publish and Subscribe: topic filters |
//! | `stateStoreResources` | `method` is `Read`, `Write`, `ReadWrite` or [`Fence`](#fences) |
//! | … `keyType` | type of `keys`: `Pattern` (the default), `String` or `Binary` |
//! | `cache`, `enableCache` | ignored |
//!
//! `Read` is GET, KEYNOTIFY, and SCAN for the keys that it lists. `Write` is SET, DEL and VDEL.
//! `Pattern` is the [glob of SCAN](statestore_proto::glob), `String` is an exact key, and `Binary`
//! is an exact key in Base64.
//!
//! In topics, in client ids of Connect, and in keys that are not binary, `{principal.clientId}`,
//! `{principal.username}` and `{principal.attributes.NAME}` are placeholders for values of the
//! principal. Wildcards in such a value are ordinary characters. If a principal lacks the value, or
//! the value is empty, the entry matches nothing. In a topic, a placeholder must be a whole level,
//! and a value with `/`, `+` or `#` matches nothing.
//!
//! A client may subscribe to a filter if one of its `topics` matches every topic that the filter
//! matches.
//!
//! # Fences
//!
//! A SET with a fencing token locks out every client that writes the key with a lower token or
//! without one, until the key is deleted. The method `Fence` of `stateStoreResources` allows a
//! client to write keys with a token. `Fence` is our extension: deployed brokers do not know it,
//! and refuse a document that contains it.
//!
//! * A document without any `Fence` does not restrict tokens: a client may use a token for every
//!   key that it may write, as with deployed brokers.
//! * In a document with a `Fence`, a write with a token is allowed if the write is allowed and a
//!   `Fence` of the principal contains the key. `Fence` alone does not allow writes.
//!
//! To acquire a lock, a client needs no token. To write under a lock, it does. So use `Fence` for
//! the keys that locks guard.
//!
//! # Choices
//!
//! In cases that deployed documents leave open, the stricter choice applies: empty `principals`
//! match no client. The name `*` is our extension.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod action;
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

pub use action::{Action, Principal};
pub use cases::{Case, CaseError, Cases};
pub use certificates::{CertificateAttributes, Subject, SubjectError};
pub use decision::{Decision, Lacks, Place};
pub use error::PolicyError;
pub use lint::{Names, Warning};
pub use rights::Rights;
pub use rule::{Policy, Section};

/// The example in the README of this package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
