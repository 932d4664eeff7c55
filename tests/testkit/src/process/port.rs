//! Ports for processes that are started, and restarted.

use std::net::{Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::thread;
use std::time::Instant;

use super::HANGS;

/// A port, reserved by binding the UDP port of the same number. The owner may listen on it.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _claim: UdpSocket,
}

impl Port {
    /// Reserves a free port of this machine.
    ///
    /// # Panics
    /// If no port is free.
    #[must_use]
    pub fn free() -> Self {
        Self::bound().0
    }

    /// Reserves a free port with its listener, so that another test cannot bind it in between.
    ///
    /// # Panics
    /// If no port is free.
    #[must_use]
    pub fn bound() -> (Self, TcpListener) {
        loop {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            let number = listener.local_addr().expect("its address").port();
            if let Ok(claim) = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)) {
                return (Self { number, _claim: claim }, listener);
            }
        }
    }

    /// The number of the port.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }
}

/// Waits until nobody listens on an address. If another test starts a process at this moment, the
/// new process has a copy of every listener of this one until it executes its program.
///
/// # Panics
/// If somebody still listens on it after [`HANGS`].
#[expect(clippy::disallowed_methods, reason = "the system frees the address, in its own time")]
pub fn wait_free(address: impl ToSocketAddrs) {
    let deadline = Instant::now() + HANGS;
    while TcpStream::connect(&address).is_ok() {
        assert!(Instant::now() < deadline, "somebody listens on the address");
        thread::yield_now();
    }
}
