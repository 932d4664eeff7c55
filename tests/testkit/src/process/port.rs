//! Ports for processes that are started, and restarted.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};

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
