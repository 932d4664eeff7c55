//! A counting allocator, for tests of allocations and memory growth.
#![expect(unsafe_code, reason = "a `GlobalAlloc` is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, counted by thread: install it with `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

/// Allocations of this thread so far.
#[must_use]
pub fn allocations() -> u64 {
    CALLS.get()
}

/// Number of allocations of this thread, grown ones included, while `work` runs and its result
/// lives.
pub fn allocations_of<T>(work: impl FnOnce() -> T) -> u64 {
    let before = allocations();
    let result = work();
    let count = allocations() - before;
    drop(result);
    count
}

/// Bytes that this thread has allocated and not freed.
#[must_use]
pub fn live_bytes() -> i64 {
    LIVE.get()
}

fn count(calls: u64, bytes: usize, sign: i64) {
    // The counters of a thread that ends may already be destroyed.
    let _ = CALLS.try_with(|cell| cell.set(cell.get() + calls));
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let _ = LIVE.try_with(|cell| cell.set(cell.get() + sign * bytes));
}

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size(), 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size(), -1);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
