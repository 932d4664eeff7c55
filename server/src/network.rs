//! The part of an address that identifies a client.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the address of an IPv4 client, also of a mapped one, and the /64 prefix of an IPv6
/// client.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        // A machine can choose any address in its /64 prefix.
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
    }
}
