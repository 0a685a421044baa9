-- Machines that have ended leave the list by a job, whatever becomes of their provider.
DROP INDEX vms_by_end;
CREATE INDEX vms_by_end ON vms (tenant_id, terminated_at, id) WHERE deleted_at IS NULL AND terminated_at IS NOT NULL;
