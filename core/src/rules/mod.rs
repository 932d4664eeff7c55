//! The rules of the store: which requests are allowed and what they change, as pure functions.
//!
//! A request passes these stages in this order, and the first stage that refuses it decides the
//! error. The protocol names the errors but not their order, so the order is our choice.
//!
//! 1. **Response address**: a response topic that is not forbidden, then correlation data and
//!    QoS 1. A message without a usable response topic is dropped, as is a retained or expired one.
//!    See [`topic`](crate::topic). A [chunk](crate::message::property::CHUNK) of a larger message is
//!    refused.
//! 2. **Grammar** of the payload: [`Request::decode`](crate::message::RequestPayload::decode).
//! 3. **Authorization** by the policy of the embedder. A client whose rights were revoked gets
//!    [`NotAuthorized`](crate::message::Refusal::NotAuthorized) even for a redelivered request.
//!    `__srcId` must not contradict a verified client id, and KEYNOTIFY and its STOP need a client
//!    id.
//! 4. **Deduplication**: a redelivered request gets its first response again and is not
//!    applied again. GET and SCAN only read, so they are executed again; so is KEYNOTIFY, since a
//!    client that gets `+OK` must be registered. Deduplication precedes the timestamp checks, so a
//!    store whose wall clock was set back does not refuse a request that it has already applied.
//! 5. **Timestamps**: `__ts` missing, malformed or too far ahead, then the same for `__ft`. See
//!    [`RequestTimestamps::verify`].
//! 6. **Fence**: [`check_fence`].
//! 7. **Condition**: NX, NEX, and the value of a VDEL.
//! 8. **Quota**: whether the request would exceed a limit.
//! 9. **Apply**: a SET gets its version from the store's clock, which receives
//!    [`RequestTimestamps::latest`]. Stage 5 bounds the timestamps that come in, never the versions
//!    that the store issues, so no request is refused because of another client's timestamps.
//!
//! [`decide`] is stages 6 to 8 and names the change for stage 9. A refused request does not change
//! its key or the clock. A refused KEYNOTIFY may still evict stale unverified registrations.
//!
//! SCAN passes stages 1 and 2 and the `__srcId` check of stage 3, and lists only keys that the
//! policy lets the client read. It bypasses the decision: match keys with
//! [`glob::Pattern`](crate::glob::Pattern), and encode the page with
//! [`PageEncoder`](crate::message::PageEncoder).
//! [`Command::decode`](crate::message::Command::decode) refuses it as an unknown command.
//!
//! This module decides stages 5 to 8. The caller compares the limits and passes an exceeded one to
//! [`decide`].
//!
//! An embedder with a compare-and-swap engine can run a store with these functions alone: look up,
//! decide, swap, retry. If several front ends share an engine, each has its own clock, which must
//! [advance past](crate::hlc::HybridClock::advance_past) the stored version before it issues the
//! next one. A deleted key must then leave its version behind, or the key's next value might get a
//! version that is not greater.

mod decide;
mod fence;
mod quota;
mod timestamps;

pub use decide::{Change, Decision, KeyState, Rejected, ReplyVersion, Stored, decide};
pub use fence::{FenceError, check_fence};
pub use quota::{Exceeded, Limit};
pub use timestamps::{ParsedTimestamps, RequestTimestamps, TimestampError, TimestampProperty};
