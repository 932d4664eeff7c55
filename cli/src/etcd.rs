//! Converts the options of a connection to etcd to those of the library.

use statestore_etcd::{Options, Tls};

use crate::args::EtcdConnection;
use crate::failure::Failure;

pub(crate) fn options(connection: &EtcdConnection) -> Result<Options, Failure> {
    let mut options = Options::new(connection.etcd.iter().cloned()).prefix(&connection.etcd_prefix);
    match (&connection.etcd_user, &connection.etcd_password) {
        (Some(user), Some(password)) => options = options.user(user, password),
        (Some(_), None) => {
            return Err(Failure::bad_input(
                "--etcd-user: the password is missing; set STATESTORE_ETCD_PASSWORD",
            ));
        }
        (None, _) => {}
    }
    if connection.etcd_tls_ca.is_none()
        && connection.etcd.iter().any(|url| url.starts_with("https:"))
    {
        return Err(Failure::bad_input(
            "--etcd: https URLs require --etcd-tls-ca, the CA certificates to trust",
        ));
    }
    if connection.etcd_tls_ca.is_some()
        && connection.etcd.iter().any(|url| url.starts_with("http:"))
    {
        return Err(Failure::bad_input(
            "--etcd-tls-ca: it requires https URLs; write each URL of --etcd as https://HOST:PORT",
        ));
    }
    if let Some(ca) = &connection.etcd_tls_ca {
        let mut tls = Tls::new(ca);
        if let (Some(certificate), Some(key)) =
            (&connection.etcd_tls_cert, &connection.etcd_tls_key)
        {
            tls = tls.identity(certificate, key);
        }
        options = options.tls(tls);
    }
    Ok(options)
}
