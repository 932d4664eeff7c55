//! The part of an address that identifies a client.

use core::net::{IpAddr, Ipv6Addr};

/// Returns whether an address is a loopback address, also a mapped one.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Returns the address of an IPv4 client, also of a mapped one, and the /64 prefix of an IPv6
/// client, because a machine can choose any address in its prefix.
///
/// ```
/// use std::net::IpAddr;
///
/// use statestore_broker::network;
///
/// let address = |text: &str| text.parse::<IpAddr>().unwrap();
/// assert_eq!(network(address("2001:db8::1:2")), address("2001:db8::"));
/// assert_eq!(network(address("::ffff:192.0.2.1")), address("192.0.2.1"));
/// ```
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
    }
}
