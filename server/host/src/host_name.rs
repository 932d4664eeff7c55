//! Names of hosts in URLs.

use std::net::IpAddr;

/// Returns whether a host of a URL is an IP address or `localhost`.
pub(crate) fn is_address_or_localhost(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    address.unwrap_or(host).parse::<IpAddr>().is_ok()
        || host.strip_suffix('.').unwrap_or(host).eq_ignore_ascii_case("localhost")
}
