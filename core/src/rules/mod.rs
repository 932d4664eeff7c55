//! Which requests are allowed and what they do: pure functions over values, for whoever keeps the table.
//!
//! Nothing outside this module accepts or refuses a write. A request is checked in this order, and the first check that
//! fails decides the answer (our choice; the protocol names the errors and not their order):
//!
//! 1. **Grammar** of the payload: [`Command::decode`](crate::message::Command::decode).
//! 2. **Authorization**: the embedder's policy; [`Refusal::NotAuthorized`](crate::message::Refusal::NotAuthorized).
//! 3. **Timestamps**: [`Stamps::verify`]; `__ts` missing, malformed, too far ahead, then the same of `__ft`.
//! 4. **Fence**: [`check_fence`].
//! 5. **Condition**: NX, NEX and the value of VDEL.
//! 6. **Quota**: whether there is room for what the request would add.
//! 7. **Apply**. A SET gets its version from the store's clock, which receives [`Stamps::latest`]. The bound of step 3
//!    judges what comes in and never what the store issues, so no request is refused for what another has sent.
//!
//! [`decide`] takes steps 4 to 6 and says what step 7 is to do. A request refused at any step changes nothing: no
//! value, token, expiry, registration or clock. Anyone with a compare-and-swap engine can run a store with these: look
//! up, decide, swap, retry. Where several front ends share an engine, each has a clock of its own: it
//! [advances past](crate::hlc::HybridClock::advance_past) the version stored before it issues the next one, and a deleted
//! key leaves its version behind, or the next value of the key might get a version that is not greater.

mod decide;
mod stamps;

pub use decide::{Change, Decision, Entry, Stamp, State, check_fence, decide};
pub use stamps::Stamps;
