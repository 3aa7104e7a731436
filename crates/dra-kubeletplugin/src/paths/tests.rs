use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::operations::kubelet_authority;

const UID: &str = "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0a";

fn driver(name: &str) -> DriverName {
    name.parse().unwrap()
}

fn paths(root: &str, name: &str, uid: Option<&str>, start: u32) -> Result<Paths, PathError> {
    Paths::new(Path::new(root), &driver(name), uid, start)
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn ordinary_names_are_readable() {
    let made = paths("/var/lib/kubelet", "gpu.example.com", None, 0xabc).unwrap();
    assert_eq!(
        made,
        Paths {
            registry: "/var/lib/kubelet/plugins_registry".into(),
            data: "/var/lib/kubelet/plugins/gpu.example.com".into(),
            registration: "/var/lib/kubelet/plugins_registry/dra-000abc@gpu.example.com-reg.sock".into(),
            registration_dot: "/var/lib/kubelet/plugins_registry/.dra-000abc@gpu.example.com-reg.sock".into(),
            dra: "/var/lib/kubelet/plugins/gpu.example.com/dra-rs-dra-000abc.sock".into(),
        }
    );
}

#[test]
fn every_legal_driver_name_fits_under_the_default_root_with_a_pod_uid() {
    for length in 1..=63 {
        let made = paths("/var/lib/kubelet", &"d".repeat(length), Some(UID), 1).unwrap();
        for path in [&made.registration, &made.registration_dot, &made.dra] {
            assert!(path.as_os_str().len() <= MAX_SOCKET_PATH, "{}", path.display());
        }
        assert!(is_registration_socket_of(&driver(&"d".repeat(length)), name(&made.registration)));
        assert!(is_registration_socket_of(&driver(&"d".repeat(length)), name(&made.registration_dot)));
        assert!(is_dra_socket(name(&made.dra)));
    }
}

#[test]
fn a_registration_socket_tells_of_its_instance_what_its_name_has_room_for() {
    let long = "d".repeat(63);
    let known = ["other".to_owned(), UID.to_owned()];
    for (driver, uid, known, expected) in [
        ("gpu.example.com", Some(UID), &[][..], Some(UID)),
        ("gpu.example.com", None, &known, None),
        (&long, Some(UID), &known, Some(UID)),
        (&long, Some(UID), &known[..1], None),
    ] {
        let made = paths("/var/lib/kubelet", driver, uid, 0xabc).unwrap();
        for path in [&made.registration, &made.registration_dot] {
            assert_eq!(instance_in(name(path), known), Some((expected, "000abc")), "{}", path.display());
        }
    }
    assert_eq!(instance_in("gpu.example.com-reg.sock", &known), None);
}

#[test]
fn pods_starts_and_drivers_never_share_a_path() {
    let long = "d".repeat(62);
    let mut seen = BTreeSet::new();
    for driver in [format!("{long}a"), format!("{long}b")] {
        for uid in [Some(UID), Some("4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0b"), None] {
            for start in [1, 2] {
                let made = paths("/var/lib/kubelet", &driver, uid, start).unwrap();
                assert!(seen.insert(made.registration) && seen.insert(made.dra));
            }
        }
    }
}

#[test]
fn a_root_that_leaves_no_room_is_refused_with_its_length() {
    let root = format!("/{}", "r".repeat(100));
    let error = paths(&root, "gpu.example.com", None, 1).unwrap_err();
    let PathError::TooLong { path, length } = &error else { panic!("{error}") };
    assert_eq!(*length, path.as_os_str().len() + 1, "the dot-name counts");
    assert!(error.to_string().contains("at most 107"), "{error}");
    // Room for the registration socket but not for the deeper DRA socket.
    let root = format!("/{}", "r".repeat(45));
    let error = paths(&root, &"d".repeat(63), None, 1).unwrap_err();
    assert!(error.to_string().contains("dra-rs-"), "{error}");
}

#[test]
fn roots_that_no_kubelet_finds_are_refused_with_the_letter() {
    for (root, letter) in [("/a%b", '%'), ("/a?b", '?'), ("/a#b", '#'), ("/a[b", '['), ("/a\nb", '\n')] {
        let expected = PathError::Letter { root: root.into(), letter };
        assert_eq!(paths(root, "gpu.example.com", None, 1), Err(expected));
    }
    assert!(matches!(paths("var/lib", "g.example.com", None, 1), Err(PathError::NotAbsolute { .. })));
}

#[test]
fn awkward_roots_that_work_give_an_authority_that_http_takes() {
    for root in ["/var/lib/kubelet", "/a b", "/a:b:c", "/a@b", "/ä/ö", "/a@b c", "/a+b=c&d;e,f"] {
        let made = paths(root, "gpu.example.com", Some(UID), 7).unwrap();
        let authority = kubelet_authority(&made.registration);
        assert!(http::uri::Authority::try_from(authority.as_str()).is_ok(), "{authority}");
    }
}

#[test]
fn without_the_at_sign_http_refuses_the_authority() {
    let authority =
        kubelet_authority(Path::new("/var/lib/kubelet/plugins_registry/gpu.example.com-reg.sock"));
    assert!(http::uri::Authority::try_from(authority.as_str()).is_err(), "{authority}");
}

#[test]
fn sockets_of_other_drivers_are_not_ours() {
    let ours = driver("gpu.example.com");
    for name in [
        "gpu.example.com-reg.sock",
        ".x@gpu.example.com-reg.sock",
        "dra-1@gpu.example.com-reg.sock",
        &format!("gpu.example.com-{UID}-reg.sock"),
        "gpu.example.com-AbC-_123456-reg.sock",
    ] {
        assert!(is_registration_socket_of(&ours, name), "{name}");
    }
    for name in [
        "nic.example.com-reg.sock",
        "dra-1@nic.example.com-reg.sock",
        "gpu.example.com-2-reg.sock",
        "gpu.example.comx-reg.sock",
        "dra-1@gpu.example.com.sock",
        "csi.sock",
    ] {
        assert!(!is_registration_socket_of(&ours, name), "{name}");
    }
}

proptest! {
    #[test]
    fn no_root_makes_a_path_that_cannot_be_bound_or_dialled(root in "/[ -~äö]{0,90}", name in "[a-z]([a-z0-9]{0,60}[a-z0-9])?", start: u32) {
        if let Ok(made) = paths(&root, &name, Some(UID), start) {
            prop_assert!(made.registration_dot.as_os_str().len() <= MAX_SOCKET_PATH);
            prop_assert!(made.dra.as_os_str().len() <= MAX_SOCKET_PATH);
            let authority = kubelet_authority(&made.registration);
            prop_assert!(http::uri::Authority::try_from(authority.as_str()).is_ok(), "{}", authority);
        }
    }
}
