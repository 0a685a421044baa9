//! Creates an instance.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use kernel::base::Timestamp;

use super::machines::read_instance;
use super::query::{AwsCall, check_region, read_answer};
use super::{AwsAdapter, CLOUD};
use crate::spec::{check_common, refuse_invalid};
use crate::{CloudError, CreatedMachine, MachineSpec, OPERATION_TAG, SpecFieldError};

/// Before it is encoded.
const USER_DATA_BYTES_MAX: usize = 16 * 1_024;
/// AWS allows 50; the name and the operation are two of them.
const TAGS_MAX: usize = 48;
const TAG_KEY_CHARS_MAX: usize = 128;
const TAG_VALUE_CHARS_MAX: usize = 256;

/// User data is read by tokens only, which a request that a server is tricked into cannot get.
pub const METADATA_TOKENS: &str = "required";

pub async fn create_instance(
    adapter: &AwsAdapter,
    spec: &MachineSpec,
    now: Timestamp,
) -> Result<CreatedMachine, CloudError> {
    refuse_invalid(&check_spec(spec))?;
    let call = describe_run(spec);
    let response = adapter.client.send(&call, now).await?;
    let mut machines = Vec::new();
    read_answer(&response, &call, &["instancesSet", "item"], |item| {
        machines.extend(read_instance(&item, &spec.region));
    })?;
    // The call is for exactly one; anything else means that its answer was not understood.
    let machine = machines.pop().filter(|_| machines.is_empty());
    let mut machine = machine.ok_or_else(|| CloudError::unreadable(CLOUD, response.status, call.effect))?;
    // Nothing more is asked of AWS: a failure now would hide that the instance exists.
    adapter.instance_types.fill_known(&mut machine);
    Ok(CreatedMachine::new(machine, spec))
}

pub fn check_spec(spec: &MachineSpec) -> Vec<SpecFieldError> {
    let mut errors = check_common(spec, USER_DATA_BYTES_MAX);
    if let Err(error) = check_region(&spec.region) {
        errors.push(SpecFieldError::new("region", format!("cannot be used: {}", error.detail)));
    }
    if spec.ssh_keys.len() > 1 {
        let detail = "has more than one key, and AWS accepts one key pair; further keys go into the user data";
        errors.push(SpecFieldError::new("ssh_keys", detail));
    }
    if spec.tags.len() > TAGS_MAX {
        errors.push(SpecFieldError::new("tags", format!("must be at most {TAGS_MAX}")));
    }
    if spec.name.chars().count() > TAG_VALUE_CHARS_MAX {
        errors.push(SpecFieldError::new("name", format!("must have at most {TAG_VALUE_CHARS_MAX} characters")));
    }
    errors.extend(spec.tags.iter().filter_map(|(key, value)| check_tag(key, value)));
    errors
}

fn check_tag(key: &str, value: &str) -> Option<SpecFieldError> {
    let key_chars = key.chars().count();
    let problem = if key == "Name" {
        "is the machine's name, which has its own field".to_owned()
    } else if key.to_ascii_lowercase().starts_with("aws:") {
        "begins with aws:, which AWS keeps to itself".to_owned()
    } else if key_chars == 0 || key_chars > TAG_KEY_CHARS_MAX {
        format!("must have 1 to {TAG_KEY_CHARS_MAX} characters")
    } else if value.chars().count() > TAG_VALUE_CHARS_MAX {
        format!("has a value of more than {TAG_VALUE_CHARS_MAX} characters")
    } else if key.chars().chain(value.chars()).any(char::is_control) {
        "has control characters".to_owned()
    } else {
        return None;
    };
    Some(SpecFieldError::new("tags", format!("{key:?} {problem}")))
}

/// The call for one instance. The same specification is always the same request, which AWS demands of a repeated token.
fn describe_run(spec: &MachineSpec) -> AwsCall<'_> {
    let user_data = spec.user_data.as_ref().map(|user_data| BASE64.encode(user_data));
    let mut call = AwsCall::ec2(&spec.region, "RunInstances")
        .creating()
        .param("ImageId", &spec.image)
        .param("InstanceType", &spec.size)
        .param("MinCount", "1")
        .param("MaxCount", "1")
        .param("ClientToken", &spec.operation_id)
        .param("MetadataOptions.HttpTokens", METADATA_TOKENS)
        .optional("KeyName", spec.ssh_keys.first().map(String::as_str))
        .optional("UserData", user_data.as_deref());
    let own = [("Name", spec.name.as_str()), (OPERATION_TAG, spec.operation_id.as_str())];
    let tags = spec.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    // The disk has the same tags: bills are split by them, and policies of organizations ask for them on both.
    for (resource, kind) in [(1, "instance"), (2, "volume")] {
        call = call.param(format!("TagSpecification.{resource}.ResourceType"), kind);
        for (index, (key, value)) in own.into_iter().chain(tags.clone()).enumerate() {
            let tag = format!("TagSpecification.{resource}.Tag.{}", index + 1);
            call = call.param(format!("{tag}.Key"), key).param(format!("{tag}.Value"), value);
        }
    }
    call
}
