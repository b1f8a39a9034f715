-- For /etc/rspamd/rspamd.local.lua, with deploy/ha/rspamd-redis.conf. Rspamd 3.4 does not read `sentinel_watch_time`
-- of redis.conf: it asks the Sentinels once a minute, and once more after three failures of a master. If that is before
-- the failover, Rspamd learns nothing for the rest of the minute.
local settings = rspamd_config:get_all_opt('redis')
local redis = settings and require('lua_redis').try_load_redis_servers(settings, rspamd_config)
if redis and redis.sentinels then
  redis.sentinel_watch_time = 5
end
