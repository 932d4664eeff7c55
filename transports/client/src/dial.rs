//! TCP connections to hosts with several addresses, as in RFC 8305 (Happy Eyeballs).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use statestore_tokio::Address;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::debug;

/// Time before the next address is tried as well.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Maximum number of addresses of a host that are tried: each attempt uses a socket, and the
/// resolver is not trusted.
const ADDRESSES_MAX: usize = 16;

/// Connects to the first address of the host that accepts, with `TCP_NODELAY`.
pub(crate) async fn connect(address: &Address) -> io::Result<TcpStream> {
    let found: Vec<_> = lookup_host((address.bare_host(), address.port)).await?.collect();
    let (stream, at) = first_of(alternate(found), TcpStream::connect).await?;
    debug!(host = %address, address = %at, "TCP connection opened");
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Orders addresses so that both families alternate. The family that the resolver prefers is first.
fn alternate(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let is_ipv6 = found.first().is_some_and(SocketAddr::is_ipv6);
    let (preferred, other): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|address| address.is_ipv6() == is_ipv6);
    let mut other = other.into_iter();
    let mut ordered: Vec<_> =
        preferred.into_iter().flat_map(|address| [Some(address), other.next()]).flatten().collect();
    ordered.extend(other);
    ordered.truncate(ADDRESSES_MAX);
    ordered
}

/// Opens connections in this order: the next one when the last one has failed, or after
/// [`ATTEMPT_DELAY`]. Returns the first that opens and cancels the others, or the last error.
async fn first_of<T, F>(
    addresses: Vec<SocketAddr>,
    open: impl Fn(SocketAddr) -> F,
) -> io::Result<(T, SocketAddr)>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut attempts = JoinSet::new();
    let mut addresses = addresses.into_iter();
    loop {
        match addresses.next() {
            Some(address) => {
                let opening = open(address);
                attempts.spawn(async move { (address, opening.await) });
            }
            None if attempts.is_empty() => return Err(last),
            None => {}
        }
        tokio::select! {
            biased;
            Some(ended) = attempts.join_next() => match ended? {
                (address, Ok(stream)) => return Ok((stream, address)),
                (address, Err(error)) => {
                    debug!(%address, %error, "TCP connection failed");
                    last = error;
                }
            },
            () = sleep(ATTEMPT_DELAY), if addresses.len() > 0 => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn addresses<const N: usize>(texts: [&str; N]) -> Vec<SocketAddr> {
        texts.map(|text| text.parse().expect("an address")).into()
    }

    #[test]
    fn both_families_alternate_and_the_first_stays_first() {
        let found = addresses(["[::1]:1", "[::2]:1", "[::3]:1", "127.0.0.1:1"]);
        assert_eq!(alternate(found), addresses(["[::1]:1", "127.0.0.1:1", "[::2]:1", "[::3]:1"]));
    }

    #[tokio::test(start_paused = true)]
    async fn silent_address_delays_the_next_one_by_250_ms() {
        let open = async |address: SocketAddr| match address.is_ipv6() {
            true => std::future::pending().await,
            false => Ok(()),
        };
        let begin = Instant::now();
        let opened = first_of(addresses(["[::1]:1", "127.0.0.1:1"]), open).await;
        assert_eq!(opened.expect("it opens").1, addresses(["127.0.0.1:1"])[0]);
        assert_eq!(begin.elapsed(), ATTEMPT_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn refusing_address_delays_nothing_and_the_last_error_is_returned() {
        let open = async |address: SocketAddr| -> io::Result<()> {
            Err(match address.is_ipv6() {
                true => io::ErrorKind::NetworkUnreachable.into(),
                false => io::ErrorKind::ConnectionRefused.into(),
            })
        };
        let begin = Instant::now();
        let error = first_of(addresses(["[::1]:1", "127.0.0.1:1"]), open).await.expect_err("none");
        assert_eq!(
            (error.kind(), begin.elapsed()),
            (io::ErrorKind::ConnectionRefused, Duration::ZERO)
        );
    }
}
