//! A library for a machine without an operating system, using every layer of the core.
//!
//! The library has its own panic handler, which would clash with the one of `std`. It has an
//! allocator only with the feature `alloc`. Therefore it links only if the core needs neither.
#![no_std]

#[cfg(feature = "broken")]
extern crate std;

use core::fmt::{self, Write};

use statestore_proto::hlc::{FencingToken, HlcRef, HybridClock, NodeIdRef, Timestamp};
use statestore_proto::message::{
    Command, Condition, Dialect, Expiry, Notification, Reply, RequestKind,
};
use statestore_proto::rules::{KeyState, RequestTimestamps, Stored, decide};
use statestore_proto::time::UnixTime;
use statestore_proto::topic::{NotificationFilter, ResponseTopic, check_response};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// A writer over a fixed buffer, as a firmware author would have one.
struct Buffer<'a> {
    bytes: &'a mut [u8],
    used: usize,
}

impl Write for Buffer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.used..).and_then(|rest| rest.get_mut(..text.len()));
        room.ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.used += text.len();
        Ok(())
    }
}

/// Runs both sides of one exchange. Returns the number of bytes a client would send, or zero after
/// an error.
#[unsafe(no_mangle)]
pub extern "C" fn statestore_exchange(unix_millis: u64) -> usize {
    exchange(UnixTime::from_millis(unix_millis)).unwrap_or(0)
}

fn exchange(now: UnixTime) -> Option<usize> {
    let mut clock = HybridClock::new(NodeIdRef::new("sensor").ok()?);
    let timestamp = Timestamp::new(clock.tick(now).ok()?);
    let (mut text, mut topic, mut payload) = ([0; 64], [0; 128], [0; 256]);
    let text_len = timestamp.hlc().encode_into(&mut text).ok()?;
    let text = core::str::from_utf8(text.get(..text_len)?).ok()?;

    let mut response = Buffer { bytes: &mut topic, used: 0 };
    write!(response, "{}", ResponseTopic::new("sensor").ok()?).ok()?;
    let topic_len = response.used;
    check_response(core::str::from_utf8(topic.get(..topic_len)?).ok()?).ok()?;
    let mut filter = Buffer { bytes: &mut topic, used: 0 };
    write!(filter, "{}", NotificationFilter::new("sensor").ok()?).ok()?;

    let condition = Condition::IfAbsentOrEqual;
    let set = Command::Set {
        key: "valve",
        value: "open",
        condition,
        expiry: Expiry::from_millis(10_000),
    };
    let sent = set.encode_into(&mut payload).ok()?;
    let request = Command::decode(payload.get(..sent)?).ok()?;
    let stamps =
        RequestTimestamps::verify(RequestKind::Set, Some(text), None, now, clock.last()).ok()?;
    let fence = FencingToken::new(HlcRef::parse("1:0:StateStore").ok()?);
    let stored = Stored { value: b"open", fence: Some(fence) };
    let state = KeyState { stored: Some(stored), ..KeyState::default() };
    let rejected = decide(state, &request, stamps.fencing_token).err()?;

    let mut answer = [0; 256];
    let error = Reply::<&[u8]>::Error(rejected.refusal().into());
    let len = error.encode_into(Dialect::Deployed, &mut answer).ok()?;
    matches!(Reply::decode(answer.get(..len)?, RequestKind::Set), Ok(Reply::Error(_)))
        .then_some(())?;
    let len = Notification::Set("open").encode_into(Dialect::Spec, &mut answer).ok()?;
    Notification::decode(answer.get(..len)?).ok()?;
    Some(sent)
}

#[cfg(feature = "machines")]
mod heap {
    use core::alloc::{GlobalAlloc, Layout};

    use statestore_proto::hlc::Hlc;
    use statestore_proto::message::Command;

    /// A heap that is always full: enough to link.
    struct Empty;

    // SAFETY: null is the defined result of a failed allocation; no memory is ever returned.
    unsafe impl GlobalAlloc for Empty {
        unsafe fn alloc(&self, _: Layout) -> *mut u8 {
            core::ptr::null_mut()
        }

        unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
    }

    #[global_allocator]
    static HEAP: Empty = Empty;

    /// The owned forms, which need a heap.
    #[unsafe(no_mangle)]
    pub extern "C" fn statestore_owned(len: usize) -> usize {
        let hlc: Result<Hlc, _> = "1:0:a node id that does not fit in place".parse();
        Command::Get { key: "valve" }.encode().len() + len + hlc.map_or(0, |hlc| hlc.encoded_len())
    }
}
