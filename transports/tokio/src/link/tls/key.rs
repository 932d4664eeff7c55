//! The private key of a client, which may be encrypted.

use std::path::Path;

#[cfg(feature = "encrypted-keys")]
use pkcs8::der::{Decode as _, ErrorKind, Header, SliceReader};
#[cfg(feature = "encrypted-keys")]
use pkcs8::pkcs5::pbes2::{Kdf, PBES2_OID, Pbkdf2Prf};
#[cfg(feature = "encrypted-keys")]
use pkcs8::pkcs5::{self, EncryptionScheme};
#[cfg(feature = "encrypted-keys")]
use pkcs8::spki::AlgorithmIdentifierRef;
#[cfg(feature = "encrypted-keys")]
use pkcs8::{EncryptedPrivateKeyInfoRef, ObjectIdentifier, SecretDocument};
use rustls::pki_types::PrivateKeyDer;
#[cfg(feature = "encrypted-keys")]
use rustls::pki_types::PrivatePkcs8KeyDer;

use super::TlsError;
use super::pem::pem_section;
use crate::link::options::Tls;

/// Maximum cost of PBKDF2, in iterations with SHA-256: about three times as many as OWASP
/// recommends. They take a few seconds at most.
#[cfg(feature = "encrypted-keys")]
const PBKDF2_COST_MAX: u32 = 2_000_000;

/// Maximum product of the parameters N, r and p of scrypt: that of the parameters that OWASP
/// recommends, N = 2^17, r = 8 and p = 1. scrypt takes 128 N r bytes of memory, so at most 128 MiB,
/// and a few seconds at most.
#[cfg(feature = "encrypted-keys")]
const SCRYPT_COST_MAX: u64 = 1 << 20;

const BEGIN_ENCRYPTED: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
const END_ENCRYPTED: &[u8] = b"-----END ENCRYPTED PRIVATE KEY-----";
const TRADITIONAL_ENCRYPTION: &[u8] = b"Proc-Type: 4,ENCRYPTED";

/// Reads the key, and decrypts it if a file with its password is set.
pub(super) fn private_key(file: &Path, tls: &Tls) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = super::read(file)?;
    let encrypted = encrypted_key(&pem);
    if let (Some(encrypted), Some(password)) = (encrypted, &tls.key_password_file) {
        return decrypt(file, encrypted, password, tls);
    }
    let file = file.to_owned();
    match (pem_section(&pem), &tls.key_password_file) {
        (Ok(key), None) => Ok(key),
        (Ok(_), Some(password)) => {
            Err(TlsError::UnencryptedKey { file, password: password.clone() })
        }
        (Err(_), _) if find(&pem, TRADITIONAL_ENCRYPTION).is_some() => {
            Err(TlsError::TraditionalEncryption { file })
        }
        (Err(_), _) if encrypted.is_some() => Err(TlsError::EncryptedKey { file }),
        (Err(error), _) => Err(TlsError::Pem { file, error }),
    }
}

/// Returns the first encrypted PKCS #8 key in a PEM file. The file may also contain certificates,
/// and bytes that are not UTF-8.
fn encrypted_key(pem: &[u8]) -> Option<&[u8]> {
    let start = find(pem, BEGIN_ENCRYPTED)?;
    let key = pem.get(start..)?;
    let end = find(key, END_ENCRYPTED).map_or(key.len(), |end| end + END_ENCRYPTED.len());
    key.get(..end)
}

fn find(bytes: &[u8], word: &[u8]) -> Option<usize> {
    bytes.windows(word.len()).position(|window| window == word)
}

#[cfg(feature = "encrypted-keys")]
fn decrypt(
    file: &Path,
    pem: &[u8],
    password: &Path,
    tls: &Tls,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    let unsupported = |algorithm| TlsError::KeyAlgorithm {
        file: file.to_owned(),
        algorithm: algorithm_name(algorithm),
    };
    let invalid = |error| match unsupported_algorithm(&error) {
        Some(algorithm) => unsupported(algorithm),
        None => TlsError::KeyEncryption { file: file.to_owned(), error },
    };
    // Invalid UTF-8 becomes an invalid character of Base64.
    let pem = String::from_utf8_lossy(pem);
    let (_, document) = SecretDocument::from_pem(&pem).map_err(|error| invalid(error.into()))?;
    if let Some(scheme) = scheme(document.as_bytes()).filter(|scheme| *scheme != PBES2_OID) {
        return Err(unsupported(scheme));
    }
    let key = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes()).map_err(invalid)?;
    if !is_affordable(&key.encryption_algorithm) {
        return Err(TlsError::KeyDerivation { file: file.to_owned() });
    }
    let text = tls.read_key_password().map_err(|error| TlsError::Password { error })?;
    let key = key.decrypt(text.unwrap_or_default()).map_err(|error| match error {
        pkcs8::Error::EncryptedPrivateKey(pkcs5::Error::DecryptFailed) | pkcs8::Error::Asn1(_) => {
            let (file, password) = (file.to_owned(), password.to_owned());
            TlsError::KeyPassword { file, password, error }
        }
        error => invalid(error),
    })?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

#[cfg(not(feature = "encrypted-keys"))]
fn decrypt(
    file: &Path,
    _pem: &[u8],
    _password: &Path,
    _tls: &Tls,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    Err(TlsError::NoDecryption { file: file.to_owned() })
}

/// Returns whether the key derivation is within the limits. The file contains its parameters, and
/// may be from another party.
#[cfg(feature = "encrypted-keys")]
fn is_affordable(scheme: &EncryptionScheme) -> bool {
    match scheme {
        EncryptionScheme::Pbes2(parameters) => match &parameters.kdf {
            Kdf::Pbkdf2(kdf) => {
                let cost = kdf.iteration_count.checked_mul(hash_cost(kdf.prf));
                cost.is_some_and(|cost| (1..=PBKDF2_COST_MAX).contains(&cost))
            }
            Kdf::Scrypt(kdf) => {
                let (block_size, lanes) = (kdf.block_size.into(), kdf.parallelization.into());
                let cost = kdf.cost_parameter.checked_mul(block_size);
                let cost = cost.and_then(|cost| cost.checked_mul(lanes));
                cost.is_some_and(|cost| (1..=SCRYPT_COST_MAX).contains(&cost))
            }
            _ => false,
        },
        // Decryption fails without deriving a key.
        _ => true,
    }
}

/// Cost of one iteration of PBKDF2, compared with SHA-256. A block of SHA-512 has twice as many
/// bytes and 80 rounds instead of 64. SHA-384 is SHA-512 with a shorter result.
#[cfg(feature = "encrypted-keys")]
const fn hash_cost(hash: Pbkdf2Prf) -> u32 {
    match hash {
        Pbkdf2Prf::HmacWithSha384 | Pbkdf2Prf::HmacWithSha512 => 2,
        _ => 1,
    }
}

/// The encryption scheme of an encrypted key. The library reports no other scheme than PBES2.
#[cfg(feature = "encrypted-keys")]
fn scheme(document: &[u8]) -> Option<ObjectIdentifier> {
    let mut reader = SliceReader::new(document).ok()?;
    Header::decode(&mut reader).ok()?;
    let algorithm = AlgorithmIdentifierRef::decode(&mut reader).ok()?;
    Some(algorithm.oid)
}

/// The algorithm that the library does not support, if the error has this cause.
#[cfg(feature = "encrypted-keys")]
fn unsupported_algorithm(error: &pkcs8::Error) -> Option<ObjectIdentifier> {
    match error {
        pkcs8::Error::Asn1(error) => match error.kind() {
            ErrorKind::OidUnknown { oid } => Some(oid),
            _ => None,
        },
        pkcs8::Error::EncryptedPrivateKey(pkcs5::Error::UnsupportedAlgorithm { oid }) => Some(*oid),
        _ => None,
    }
}

/// The name of an algorithm that older programs encrypt keys with.
#[cfg(feature = "encrypted-keys")]
fn algorithm_name(algorithm: ObjectIdentifier) -> String {
    let oid = algorithm.to_string();
    let name = match &*oid {
        "1.2.840.113549.3.7" => "3DES (DES-EDE3-CBC)",
        "1.2.840.113549.1.12.1.3" => "3DES (PBE-SHA1-3DES)",
        "1.2.840.113549.1.12.1.4" => "3DES (PBE-SHA1-2DES)",
        "1.3.14.3.2.7" | "1.2.840.113549.1.5.3" | "1.2.840.113549.1.5.10" => "DES",
        "1.2.840.113549.3.2"
        | "1.2.840.113549.1.5.6"
        | "1.2.840.113549.1.5.11"
        | "1.2.840.113549.1.12.1.5"
        | "1.2.840.113549.1.12.1.6" => "RC2",
        "1.2.840.113549.1.12.1.1" | "1.2.840.113549.1.12.1.2" => "RC4",
        "1.2.840.113549.2.7" => "PBKDF2 with SHA-1",
        _ => return format!("an unknown algorithm ({oid})"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encrypted_key_is_found_between_lines_that_are_not_utf8() {
        let key = [BEGIN_ENCRYPTED, b"\nAAAA\n", END_ENCRYPTED].concat();
        let pem = [b"friendlyName: M\xfcller\n", &*key, b"\n\xff"].concat();
        assert_eq!(encrypted_key(&pem), Some(&*key));
        assert_eq!(encrypted_key(b"an ENCRYPTED PRIVATE KEY"), None);
    }

    #[cfg(feature = "encrypted-keys")]
    mod encrypted {
        use std::path::PathBuf;

        use pkcs8::der::asn1::OctetStringRef;
        use pkcs8::pkcs5::pbes2::{
            EncryptionScheme as Cipher, Parameters, Pbkdf2Params, Salt, ScryptParams,
        };
        use pkcs8::{EncryptedPrivateKeyInfo, LineEnding};

        use super::*;

        const PASSWORD: &str = "correct horse";

        /// A directory with a key and its password.
        struct Folder(PathBuf);

        impl Folder {
            fn new(test: &str) -> Self {
                let name = format!("statestore-key-{}-{test}", std::process::id());
                let folder = Self(std::env::temp_dir().join(name));
                std::fs::create_dir_all(&folder.0).expect("a directory");
                folder.write("password", PASSWORD.as_bytes());
                folder
            }

            fn path(&self, name: &str) -> PathBuf {
                self.0.join(name)
            }

            fn write(&self, name: &str, content: &[u8]) {
                std::fs::write(self.path(name), content).expect("a file");
            }

            /// Reads the key, with a password.
            fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
                let tls = Tls::default().key_password_file(self.path("password"));
                private_key(&self.path("key"), &tls)
            }

            /// The error of the key, which must name the file of the key and not the password.
            fn error(&self) -> TlsError {
                let error = self.key().map(drop).expect_err("an error");
                let text = error.to_string();
                assert!(text.starts_with(&*self.path("key").to_string_lossy()), "{text}");
                assert!(!text.contains(PASSWORD), "{text}");
                error
            }
        }

        impl Drop for Folder {
            fn drop(&mut self) {
                let _ = std::fs::remove_dir_all(&self.0);
            }
        }

        /// Made by `openssl pkcs8 -topk8 -v2 des3`.
        const DES3: &str = "\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGKME4GCSqGSIb3DQEFDTBBMCkGCSqGSIb3DQEFDDAcBAid17U/ngBfrwICCAAw
DAYIKoZIhvcNAgkFADAUBggqhkiG9w0DBwQI6l6+5OP11GQEOFjKz6LtebjrQQyg
1mbKMGAmHxgnGDfMKCYLU5I8NOXTDkpIwfeLc2UICRVmoHutdh1QjTbY0pjQ
-----END ENCRYPTED PRIVATE KEY-----
";

        /// Made by `openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES`.
        const PBE_SHA1_3DES: &str = "\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MFgwHAYKKoZIhvcNAQwBAzAOBAiRWpRoc3wI6wICCAAEOMDvpI2i6UyYEoH6e7fE
H3YmZYpGx0bRK8GLU93Mm4yJeaZIY4wqGbZumoY0ch3/CzRWXM/WRmus
-----END ENCRYPTED PRIVATE KEY-----
";

        const CIPHER: Cipher = Cipher::Aes256Cbc { iv: [7; 16] };

        fn pbkdf2(iterations: u32) -> Parameters {
            pbkdf2_with(Pbkdf2Prf::HmacWithSha256, iterations)
        }

        fn pbkdf2_with(hash: Pbkdf2Prf, iterations: u32) -> Parameters {
            let kdf = Pbkdf2Params {
                salt: Salt::new([1; 16]).expect("a salt"),
                iteration_count: iterations,
                key_length: None,
                prf: hash,
            };
            Parameters { kdf: kdf.into(), encryption: CIPHER }
        }

        fn scrypt(cost: u64, block_size: u16, lanes: u16) -> Parameters {
            let kdf = ScryptParams {
                salt: Salt::new([1; 16]).expect("a salt"),
                cost_parameter: cost,
                block_size,
                parallelization: lanes,
                key_length: None,
            };
            Parameters { kdf: kdf.into(), encryption: CIPHER }
        }

        /// A PEM file with these bytes as encrypted key.
        fn pem(parameters: &Parameters, encrypted: &[u8]) -> String {
            let info = EncryptedPrivateKeyInfo {
                encryption_algorithm: parameters.clone().into(),
                encrypted_data: OctetStringRef::new(encrypted).expect("short"),
            };
            let document = SecretDocument::try_from(&info).expect("DER");
            document.to_pem("ENCRYPTED PRIVATE KEY", LineEnding::LF).expect("PEM").to_string()
        }

        #[test]
        fn key_is_decrypted_with_the_password_in_the_file() {
            let folder = Folder::new("decrypted");
            // An empty sequence is the shortest document.
            let plain = [0x30, 0x00];
            for parameters in [pbkdf2(10), scrypt(16, 8, 1)] {
                let encrypted = parameters.encrypt(PASSWORD, &plain).expect("encrypted");
                folder.write("key", pem(&parameters, &encrypted).as_bytes());
                assert_eq!(folder.key().expect("a key").secret_der(), plain);
            }
        }

        #[test]
        fn hostile_key_derivation_is_rejected() {
            // Deriving some of these keys would take years or all memory.
            let folder = Folder::new("hostile");
            for parameters in [
                pbkdf2(0),
                pbkdf2(2_000_001),
                pbkdf2(u32::MAX),
                pbkdf2_with(Pbkdf2Prf::HmacWithSha384, 1_000_001),
                pbkdf2_with(Pbkdf2Prf::HmacWithSha512, 1_000_001),
                pbkdf2_with(Pbkdf2Prf::HmacWithSha512, 1 << 31),
                scrypt(0, 8, 1),
                scrypt(16, 0, 1),
                scrypt(16, 8, 0),
                scrypt(1 << 18, 8, 1),
                scrypt(1 << 17, 8, 2),
                scrypt(u64::MAX, u16::MAX, u16::MAX),
            ] {
                folder.write("key", pem(&parameters, &[0; 16]).as_bytes());
                let error = folder.error();
                assert!(matches!(error, TlsError::KeyDerivation { .. }), "{error:?}");
                assert!(error.to_string().contains("openssl pkcs8 -topk8"), "{error}");
            }
            let scheme = EncryptionScheme::Pbes2;
            assert!(is_affordable(&scheme(pbkdf2(2_000_000))));
            let sha512 = pbkdf2_with(Pbkdf2Prf::HmacWithSha512, 1_000_000);
            assert!(is_affordable(&scheme(sha512)));
            assert!(is_affordable(&scheme(scrypt(1 << 17, 8, 1))));
        }

        #[test]
        fn each_error_names_the_key_and_a_remedy() {
            let folder = Folder::new("errors");
            let encrypted = pbkdf2(10).encrypt("another", &[0x30, 0x00]).expect("encrypted");
            folder.write("key", pem(&pbkdf2(10), &encrypted).as_bytes());
            let wrong = folder.error();
            assert!(matches!(wrong, TlsError::KeyPassword { .. }), "{wrong:?}");
            let missing = private_key(&folder.path("key"), &Tls::default());
            assert!(matches!(missing, Err(TlsError::EncryptedKey { .. })), "{missing:?}");
            let unreadable = Tls::default().key_password_file(folder.path("none"));
            let unreadable = private_key(&folder.path("key"), &unreadable).map(drop);
            let unreadable = unreadable.expect_err("no password").to_string();
            assert!(unreadable.contains(&*folder.path("none").to_string_lossy()), "{unreadable}");

            let plain = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
            folder.write("key", plain.as_bytes());
            let error = folder.error();
            assert!(matches!(error, TlsError::UnencryptedKey { .. }), "{error:?}");
            let traditional = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\
                               DEK-Info: AES-256-CBC,00\n\nMAA=\n-----END RSA PRIVATE KEY-----\n";
            folder.write("key", traditional.as_bytes());
            let error = folder.error();
            assert!(matches!(error, TlsError::TraditionalEncryption { .. }), "{error:?}");
            assert!(error.to_string().contains("openssl pkcs8 -topk8"), "{error}");

            let garbage = [BEGIN_ENCRYPTED, b"\n\xff\n", END_ENCRYPTED, b"\n"].concat();
            folder.write("key", &garbage);
            let error = folder.error();
            assert!(matches!(error, TlsError::KeyEncryption { .. }), "{error:?}");
        }

        #[test]
        fn unsupported_algorithm_is_named_with_the_command_that_converts_the_key() {
            let folder = Folder::new("algorithms");
            let sha1 = pem(&pbkdf2_with(Pbkdf2Prf::HmacWithSha1, 10), &[0; 16]);
            for (key, algorithm) in [
                (DES3, "3DES (DES-EDE3-CBC)"),
                (PBE_SHA1_3DES, "3DES (PBE-SHA1-3DES)"),
                (&*sha1, "PBKDF2 with SHA-1"),
            ] {
                folder.write("key", key.as_bytes());
                let text = folder.error().to_string();
                let end = format!(
                    "key: the key is encrypted with {algorithm}, which is not supported; encrypt \
                     it with AES by `openssl pkcs8 -topk8 -in KEY -out NEW`"
                );
                assert!(text.ends_with(&end), "{text}");
            }
        }
    }
}
