//! From the options of etcd to those of its library.

use statestore_etcd::{Options, Tls};

use crate::args::EtcdAt;
use crate::failure::Failure;

pub(crate) fn options(at: &EtcdAt) -> Result<Options, Failure> {
    let mut options = Options::new(at.etcd.iter().cloned()).prefix(&at.etcd_prefix);
    match (&at.etcd_user, &at.etcd_password) {
        (Some(user), Some(password)) => options = options.user(user, password),
        (Some(_), None) => {
            return Err(Failure::bad_input(
                "--etcd-user: with which password? Give it in the environment as STATESTORE_ETCD_PASSWORD",
            ));
        }
        (None, _) => {}
    }
    if at.etcd_ca.is_none() && at.etcd.iter().any(|url| url.starts_with("https:")) {
        return Err(Failure::bad_input(
            "--etcd https://…: whose certificates are to be trusted? Give their authorities as --etcd-tls-ca",
        ));
    }
    if at.etcd_ca.is_some() && at.etcd.iter().any(|url| url.starts_with("http:")) {
        return Err(Failure::bad_input(
            "--etcd-tls-ca is for members of etcd at https://…: write each URL of --etcd so, or leave it out",
        ));
    }
    if let Some(authorities) = &at.etcd_ca {
        let mut tls = Tls::new(authorities);
        if let (Some(certificate), Some(key)) = (&at.etcd_cert, &at.etcd_key) {
            tls = tls.identity(certificate, key);
        }
        options = options.tls(tls);
    }
    Ok(options)
}
