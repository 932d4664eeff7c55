//! A port for a process that is started, and started again.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};

/// A port, and the UDP port of the same number: its owner may listen there, and no other process
/// takes ours for his.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _claim: UdpSocket,
}

impl Port {
    /// A free port of this machine.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn free() -> Self {
        Self::bound().0
    }

    /// A free port with its listener, so that another test cannot bind it in between.
    ///
    /// # Panics
    /// Panics if there is no free port.
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

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }
}
